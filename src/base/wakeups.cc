#include "base/wakeups.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>

#include "base/check.h"

namespace llorch::base {

Wakeups::Wakeups() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signal_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  CHECK(event_ >= 0 && signal_ >= 0, "no file descriptors for signals");
}

Wakeups::~Wakeups() {
  ::close(event_);
  ::close(signal_);
}

void Wakeups::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof(one));
}

bool Wakeups::wait_for_signal(int patience_ms) const {
  std::array<pollfd, 2> files = {pollfd{signal_, POLLIN, 0}, pollfd{event_, POLLIN, 0}};
  ::poll(files.data(), files.size(), patience_ms);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(event_, &count, sizeof(count));
  signalfd_siginfo info;
  return ::read(signal_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
}

}  // namespace llorch::base
