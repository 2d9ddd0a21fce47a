// What the worker's HTTP API counts, as the text that Prometheus reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/metrics_text.h"
#include "worker_http/backend.h"

namespace llorch::worker_http {

// How a request for text ended. The order is that of the names.
enum class Outcome : std::uint8_t {
  MaxTokens,
  Eos,
  StopSequence,
  Cancelled,
  Timeout,
  Failed,
  QueueFull,    // 429
  Refused,      // any other error before it was accepted
  Unavailable,  // loading or draining
};
inline constexpr std::size_t kNumOutcomes = 9;
std::string_view name(Outcome outcome);

Outcome outcome_of(const Result<contract::InferenceResult>& result);
Outcome outcome_of_refusal(const Error& error);

// Any thread.
class Metrics {
 public:
  void count(Outcome outcome) { ++requests_[static_cast<std::size_t>(outcome)]; }
  // A request that was accepted has ended; `told` of its tokens were made elsewhere.
  void record(const Result<contract::InferenceResult>& result, std::int64_t told, double queue_ms,
              double total_ms);

  // The whole page: what is counted here, and the backend's counters and gauges.
  std::string render(const InferenceBackend& backend) const;

 private:
  std::array<std::atomic<std::int64_t>, kNumOutcomes> requests_ = {};
  api::Histogram queue_;
  api::Histogram first_token_;
  api::Histogram per_token_;
  api::Histogram total_;
};

}  // namespace llorch::worker_http
