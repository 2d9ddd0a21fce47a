#include "fetch/retry.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::fetch {
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

std::chrono::milliseconds Retries::next_pause(int failures) {
  const int doublings = std::clamp(failures - 1, 0, kDoublingsMax);
  const std::int64_t full = std::min<std::int64_t>(policy_.longest_pause.count(),
                                                   policy_.first_pause.count() << doublings);
  const std::int64_t half = full / 2;
  const auto spread = static_cast<std::uint64_t>(full - half) + 1;
  return std::chrono::milliseconds(half + static_cast<std::int64_t>(next_random(jitter_) % spread));
}

Result<std::chrono::milliseconds> Retries::fail(Attempts& attempts, std::string_view what,
                                                std::chrono::seconds retry_after,
                                                std::string_view advice) {
  ++count_;
  ++attempts.failures;
  if (retry_after > policy_.longest_retry_after) {
    return Error{ErrorCode::Unavailable, fmt::format("{} and asks to wait {} s: try again then{}",
                                                     what, retry_after.count(), advice)};
  }
  if (attempts.failures >= policy_.max_attempts) {
    return Error{ErrorCode::Unavailable, fmt::format("{}, {} times in a row: try again later{}",
                                                     what, attempts.failures, advice)};
  }
  const std::chrono::milliseconds pause =
      retry_after.count() > 0 ? retry_after : next_pause(attempts.failures);
  attempts.not_before = std::chrono::steady_clock::now() + pause;
  return pause;
}

bool Retries::fail_at_once(Attempts& attempts) {
  if (++attempts.failures >= policy_.max_attempts) return false;
  ++count_;
  return true;
}

}  // namespace llorch::fetch
