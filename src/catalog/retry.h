// When a failed request is tried again, and how long to wait before it: decisions only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace llorch::catalog {

// When a connection counts as stalled: silent for this long, or slower than this over it. Fetches
// take their own numbers; these are the usual ones.
inline constexpr std::chrono::milliseconds kStallTimeout{30'000};
inline constexpr std::int64_t kMinBytesPerSecond = 1024;
// A server that is silent for so long is named to whoever watches.
inline constexpr std::chrono::milliseconds kWaitShown{3'000};

struct RetryPolicy {
  int max_attempts = 6;  // in a row without a byte gained; only failures that may pass count
  std::chrono::milliseconds first_pause{500};  // doubles, with jitter
  std::chrono::milliseconds longest_pause{30'000};
  // A server may ask for a longer pause; more than this is a failure that says so.
  std::chrono::milliseconds longest_retry_after{300'000};
  std::uint64_t jitter_seed = 0;
};

// Whether a connection that brought so many bytes over `window` gave less than its share of the
// minimum: a slow line has one rate for all its connections.
bool is_too_slow(std::int64_t bytes, std::chrono::milliseconds window, std::int64_t connections,
                 std::int64_t min_bytes_per_second);

// An answer that may be another one later: 408, 416 (a cache that has only half), 425, 429, 5xx.
bool may_pass(int http_status);

// Between half the doubled pause and all of it, so that many clients spread out. `failures` counts
// from 1; the random numbers are a function of the state, which moves on.
std::chrono::milliseconds pause_after(const RetryPolicy& policy, int failures,
                                      std::uint64_t& jitter_state);

// What the pause is when the server named one (seconds, 0: it did not). Nothing: too long to wait.
std::optional<std::chrono::milliseconds> pause_after(const RetryPolicy& policy, int failures,
                                                     std::chrono::seconds retry_after,
                                                     std::uint64_t& jitter_state);

}  // namespace llorch::catalog
