// How long to wait before the next try.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace llorch::remote {

inline constexpr std::chrono::milliseconds kFirstPause{500};
inline constexpr std::chrono::milliseconds kLongestPause{60'000};

// After `num_failures` in a row (1 or more): 0.5 s, doubled with each, at most 60 s; the last
// quarter by chance (`random` in 0..1), so that hosts that were lost together do not return
// together.
inline std::chrono::milliseconds back_off(std::int64_t num_failures, double random) {
  const std::int64_t doublings = std::clamp<std::int64_t>(num_failures - 1, 0, 7);
  const auto pause = std::min(kFirstPause * (std::int64_t{1} << doublings), kLongestPause);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      pause * (0.75 + 0.25 * std::clamp(random, 0.0, 1.0)));
}

}  // namespace llorch::remote
