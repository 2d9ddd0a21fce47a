// Clock: where code that decides by time gets it from, so that a test can say what time it is.
#pragma once

#include <atomic>
#include <chrono>
#include <stop_token>

namespace llorch::base {

// Monotonic time. Every thread may use it.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;

  virtual TimePoint now() const = 0;
  // Returns true at `until`, or false as soon as `stop` is requested.
  virtual bool sleep_until(TimePoint until, const std::stop_token& stop) const = 0;

  bool sleep_for(Duration time, const std::stop_token& stop) const {
    return sleep_until(now() + time, stop);
  }
};

// The machine's steady clock; it lives as long as the program.
const Clock& real_clock();

// For tests: stands still until it is told to go on. Whoever sleeps moves it to the end of its
// sleep at once, so that pauses cost nothing and can be read off now().
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint(std::chrono::hours(1))) : now_(start) {}

  TimePoint now() const override { return now_; }
  bool sleep_until(TimePoint until, const std::stop_token& stop) const override;
  // Never backwards.
  void advance(Duration time) { advance_to(now() + time); }

 private:
  void advance_to(TimePoint time) const;

  mutable std::atomic<TimePoint> now_;
};

}  // namespace llorch::base
