#include "base/clock.h"

#include "base/mutex.h"

namespace llorch::base {
namespace {

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

  bool sleep_until(TimePoint until, const std::stop_token& stop) const override {
    Mutex mutex;
    CondVar stopped;
    const std::stop_callback on_stop(stop, [&] {
      const MutexLock lock(mutex);
      stopped.notify_all();
    });
    const MutexLock lock(mutex);
    while (!stop.stop_requested() && stopped.wait_until(mutex, until)) {
    }
    return !stop.stop_requested();
  }
};

}  // namespace

const Clock& real_clock() {
  static const RealClock instance;
  return instance;
}

bool ManualClock::sleep_until(TimePoint until, const std::stop_token& stop) const {
  if (stop.stop_requested()) return false;
  advance_to(until);
  return true;
}

void ManualClock::advance_to(TimePoint time) const {
  TimePoint before = now_;
  while (before < time && !now_.compare_exchange_weak(before, time)) {
  }
}

}  // namespace llorch::base
