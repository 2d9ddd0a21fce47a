#include "base/reader_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>

#include "base/check.h"
#include "base/thread.h"

namespace llorch::base {

ReaderWatch::ReaderWatch(int output) : stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
  CHECK(stop_fd_ >= 0, "no file descriptors left at the start of the program");
  thread_ = start_thread("reader-watch", [output, stop_fd = stop_fd_] {
    // Not for this thread: a signal goes to who handles it, or ends the program.
    sigset_t signals;
    sigfillset(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::array<pollfd, 2> fds = {pollfd{output, 0, 0}, pollfd{stop_fd, POLLIN, 0}};
    while (::poll(fds.data(), fds.size(), -1) < 0) {
    }
    constexpr int kGone = POLLERR | POLLHUP;
    if (fds[1].revents == 0 && (fds[0].revents & kGone) != 0) ::kill(::getpid(), SIGINT);
  });
}

ReaderWatch::~ReaderWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_fd_, &one, sizeof one);
  thread_.join();
  ::close(stop_fd_);
}

}  // namespace llorch::base
