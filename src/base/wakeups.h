// What can wake the main thread of a server: signals that ask it to end, and requests from its
// other threads.
#pragma once

namespace llorch::base {

// Make it before any other thread: threads made later inherit that SIGTERM and SIGINT are blocked,
// so that only this object hears them. SIGPIPE is ignored from then on. One thread waits.
class Wakeups {
 public:
  Wakeups();
  ~Wakeups();
  Wakeups(const Wakeups&) = delete;
  Wakeups& operator=(const Wakeups&) = delete;

  void wake() const;  // any thread

  // True when a signal came within `patience_ms` (negative: no end); false after wake() or in vain.
  bool wait_for_signal(int patience_ms) const;

 private:
  int event_;
  int signal_;
};

}  // namespace llorch::base
