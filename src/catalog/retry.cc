#include "catalog/retry.h"

#include <algorithm>

namespace llorch::catalog {
namespace {

// splitmix64: a small generator whose whole state is one number.
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

constexpr int kDoublingsMax = 20;

}  // namespace

bool is_too_slow(std::int64_t bytes, std::chrono::milliseconds window, std::int64_t connections,
                 std::int64_t min_bytes_per_second) {
  return bytes * 1000 * connections < min_bytes_per_second * window.count();
}

bool may_pass(int http_status) {
  return http_status == 408 || http_status == 416 || http_status == 425 || http_status == 429 ||
         (http_status >= 500 && http_status <= 599);
}

std::chrono::milliseconds pause_after(const RetryPolicy& policy, int failures,
                                      std::uint64_t& jitter_state) {
  const int doublings = std::clamp(failures - 1, 0, kDoublingsMax);
  const std::int64_t full =
      std::min<std::int64_t>(policy.longest_pause.count(), policy.first_pause.count() << doublings);
  const std::int64_t half = full / 2;
  const auto spread = static_cast<std::uint64_t>(full - half) + 1;
  return std::chrono::milliseconds(half +
                                   static_cast<std::int64_t>(next_random(jitter_state) % spread));
}

std::optional<std::chrono::milliseconds> pause_after(const RetryPolicy& policy, int failures,
                                                     std::chrono::seconds retry_after,
                                                     std::uint64_t& jitter_state) {
  if (retry_after.count() <= 0) return pause_after(policy, failures, jitter_state);
  if (retry_after > policy.longest_retry_after) return std::nullopt;
  return retry_after;
}

}  // namespace llorch::catalog
