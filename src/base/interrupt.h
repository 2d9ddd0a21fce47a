// Ctrl-C as a callback: SIGINT, SIGTERM and SIGHUP no longer end the program but call a function,
// on a thread where everything is allowed.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace llorch::base {

// Make it before any other thread: threads made later inherit that the signals are blocked. At
// the end of its life the signals do again what they did. One at a time.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_interrupt);
  // For programs that go on after Ctrl-C: called for every signal, with its number.
  explicit InterruptWatch(std::function<void(int signal)> on_each);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether one came. A callback without a number is called once, for the first; further ones are
  // ignored.
  bool interrupted() const { return interrupted_; }

 private:
  void watch(int signal_fd, int stop_fd);

  std::function<void(int signal)> on_signal_;
  std::atomic<bool> interrupted_ = false;
  int signal_fd_;
  int stop_fd_;
  std::jthread thread_;
};

}  // namespace llorch::base
