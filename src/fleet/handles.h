// Numbers by which the fleet's tables name each other's rows, and its time.
#pragma once

#include <chrono>
#include <cstdint>

namespace llorch::fleet {

using TimePoint = std::chrono::steady_clock::time_point;
using Millis = std::chrono::milliseconds;

// Rows of jobs and workers are used again once they are free; those of the others stay.
using JobIndex = std::uint32_t;
using WorkerIndex = std::uint32_t;
using HostIndex = std::uint32_t;
using DeviceIndex = std::uint32_t;  // over all hosts
using ModelIndex = std::uint32_t;
using LineIndex = std::uint32_t;  // of jobs that wait for the same workers
using KeyIndex = std::uint32_t;
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

inline double millis_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}
inline TimePoint after_millis(TimePoint from, double millis) {
  return from + std::chrono::duration_cast<TimePoint::duration>(
                    std::chrono::duration<double, std::milli>(millis));
}

}  // namespace llorch::fleet
