// When a failed request is tried again, and how long to wait before it: decisions only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace llorch::fetch {

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

// Failures in a row, and until when to leave it alone.
struct Attempts {
  int failures = 0;
  std::chrono::steady_clock::time_point not_before{};
};

// The pauses of one errand. The random numbers are a function of the policy's seed.
class Retries {
 public:
  explicit Retries(const RetryPolicy& policy) : policy_(policy), jitter_(policy.jitter_seed) {}

  // `what` failed once more, in a way that may pass. The pause before the next attempt: what the
  // server asked for (0: nothing), else between half the doubled pause and all of it, so that many
  // clients spread out. Unavailable when that was the last attempt or the server asks for too long
  // a pause; `advice` ends that message.
  Result<std::chrono::milliseconds> fail(Attempts& attempts, std::string_view what,
                                         std::chrono::seconds retry_after,
                                         std::string_view advice = "");
  // One more attempt that needs no pause; false: that was the last one.
  bool fail_at_once(Attempts& attempts);

  int count() const { return count_; }  // of attempts that followed a failure

 private:
  std::chrono::milliseconds next_pause(int failures);

  const RetryPolicy policy_;
  std::uint64_t jitter_;
  int count_ = 0;
};

}  // namespace llorch::fetch
