// Counters and latency histograms of the worker's HTTP API, and the text that Prometheus reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

// Counts of values up to each of its bounds, and their sum. Any thread may add while another reads.
class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   30};

  void add(double seconds);
  // Appends the lines of one histogram in Prometheus' text format.
  void append_to(std::string& out, std::string_view metric, std::string_view help) const;

 private:
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_ = {};  // the last: above all
  std::atomic<std::int64_t> sum_us_ = 0;
};

// Any thread.
class Metrics {
 public:
  void count(Outcome outcome) { ++requests_[static_cast<std::size_t>(outcome)]; }
  // A request that was accepted has ended.
  void record(const Result<contract::InferenceResult>& result, double queue_ms, double total_ms);

  // The whole page: what is counted here, and the backend's counters and gauges.
  std::string render(const InferenceBackend& backend) const;

 private:
  std::array<std::atomic<std::int64_t>, kNumOutcomes> requests_ = {};
  Histogram queue_;
  Histogram first_token_;
  Histogram per_token_;
  Histogram total_;
};

}  // namespace llorch::worker_http
