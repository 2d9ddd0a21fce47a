#include "base/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/job_border.h"
#include "base/log.h"
#include "base/thread.h"

namespace llorch::base {
namespace {

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

InterruptWatch::InterruptWatch(std::function<void()> on_interrupt)
    : InterruptWatch([on_first = std::move(on_interrupt), called = false](int) mutable {
        if (!std::exchange(called, true)) on_first();
      }) {}

InterruptWatch::InterruptWatch(std::function<void(int signal)> on_each)
    : on_signal_(std::move(on_each)) {
  const sigset_t signals = watched_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  CHECK(signal_fd_ >= 0 && stop_fd_ >= 0, "no file descriptors left at the start of the program");
  thread_ = start_thread("interrupt", [this] { watch(signal_fd_, stop_fd_); });
}

InterruptWatch::~InterruptWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_fd_, &one, sizeof one);
  thread_.join();
  // Those that came since are ignored too: unblocked, they would end the program.
  signalfd_siginfo info{};
  while (::read(signal_fd_, &info, sizeof info) > 0) {
  }
  ::close(signal_fd_);
  ::close(stop_fd_);
  const sigset_t signals = watched_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void InterruptWatch::watch(int signal_fd, int stop_fd) {
  std::array<pollfd, 2> fds = {pollfd{signal_fd, POLLIN, 0}, pollfd{stop_fd, POLLIN, 0}};
  for (;;) {
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signal_fd, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    interrupted_ = true;
    // A callback that fails must not take Ctrl-C from the user: the next signal is heard again.
    const Status heard =
        run_guarded("on a signal", [&] { on_signal_(static_cast<int>(info.ssi_signo)); });
    if (!heard.ok()) Logger("base").error("a signal was lost", {{"error", heard.error().message}});
  }
}

}  // namespace llorch::base
