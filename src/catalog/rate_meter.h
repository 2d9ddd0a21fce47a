// How fast something goes now: over the last seconds, not since the beginning. Private to catalog/.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace llorch::catalog {

class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `done` so far at `now`. What was there before the first call does not count; less than before
  // begins anew.
  void add(Time now, std::int64_t done) {
    if (!samples_.empty() && done < samples_.back().done) samples_.clear();
    if (samples_.size() < 2 || now - samples_[samples_.size() - 2].time >= kStep)
      samples_.push_back({now, done});
    else
      samples_.back() = {now, done};
    while (samples_.size() > 2 && now - samples_.front().time > kWindow) samples_.pop_front();
  }

  double per_second() const {  // 0: not known yet
    if (samples_.size() < 2) return 0;
    const std::chrono::duration<double> time = samples_.back().time - samples_.front().time;
    const auto done = static_cast<double>(samples_.back().done - samples_.front().done);
    return time.count() > 0 ? done / time.count() : 0;
  }

 private:
  static constexpr std::chrono::milliseconds kWindow{5000};
  static constexpr std::chrono::milliseconds kStep{200};
  struct Sample {
    Time time;
    std::int64_t done;
  };
  std::deque<Sample> samples_;
};

}  // namespace llorch::catalog
