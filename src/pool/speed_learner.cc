#include "pool/speed_learner.h"

#include <algorithm>

#include "pool/probe.h"

namespace llorch::pool {
namespace {

constexpr std::int64_t kPromptTokensMin =
    16;                                     // fewer measure the start of a request, not its prompt
constexpr std::int64_t kManyRequests = 16;  // what is under way then counts for little
constexpr int kSteadyLooks =
    4;  // the worker's rate is that of the last seconds, looks come each one
constexpr std::int32_t kStreamsMax = 64;
constexpr double kLeastSeconds = 1e-6;

}  // namespace

std::optional<WorkerCounters> read_counters(std::string_view page) {
  const auto prompts = find_metric(page, "llorch_prompt_tokens_total");
  const auto firsts = find_metric(page, "llorch_first_token_seconds_count");
  const auto first_s = find_metric(page, "llorch_first_token_seconds_sum");
  const auto queue_s = find_metric(page, "llorch_queue_seconds_sum");
  const auto decodes = find_metric(page, "llorch_token_seconds_count");
  const auto token_s = find_metric(page, "llorch_token_seconds_sum");
  if (!prompts || !firsts || !first_s || !queue_s || !decodes || !token_s) return std::nullopt;
  WorkerCounters counters;
  counters.prompt_tokens = static_cast<std::int64_t>(*prompts);
  counters.first_tokens = static_cast<std::int64_t>(*firsts);
  counters.first_token_s = *first_s;
  counters.queue_s = *queue_s;
  counters.decodes = static_cast<std::int64_t>(*decodes);
  counters.token_s = *token_s;
  counters.slots_busy =
      static_cast<std::int32_t>(find_metric(page, "llorch_slots_busy").value_or(0));
  counters.decode_tps = find_metric(page, "llorch_decode_tokens_per_second").value_or(0);
  return counters;
}

std::int32_t stream_step(std::int32_t streams) {
  std::int32_t step = 1;
  while (step < streams && step < kStreamsMax) step *= 2;
  return step;
}

std::vector<SpeedSample> SpeedLearner::take(const WorkerCounters& now) {
  std::vector<SpeedSample> samples;
  steady_looks_ = now.slots_busy == busy_ ? steady_looks_ + 1 : 1;
  busy_ = now.slots_busy;
  was_shared_ |= now.slots_busy > 1;
  if (busy_ > 0 && steady_looks_ >= kSteadyLooks && now.decode_tps > 0) {
    samples.push_back({stream_step(busy_), now.decode_tps / busy_});
    steady_looks_ = 0;
  }
  if (!from_) {
    if (busy_ == 0) from_ = now;
    return samples;
  }
  const std::int64_t requests = now.first_tokens - from_->first_tokens;
  if (busy_ > 0 && requests < kManyRequests) return samples;
  const std::int64_t tokens = now.prompt_tokens - from_->prompt_tokens;
  const double seconds =
      (now.first_token_s - from_->first_token_s) - (now.queue_s - from_->queue_s);
  if (requests > 0 && tokens >= kPromptTokensMin * requests && seconds > kLeastSeconds)
    samples.push_back({0, static_cast<double>(tokens) / seconds});
  const double token_s = now.token_s - from_->token_s;
  if (!was_shared_ && now.decodes - from_->decodes == 1 && token_s > kLeastSeconds)
    samples.push_back({1, 1 / token_s});
  from_ = now;
  was_shared_ = busy_ > 1;
  return samples;
}

}  // namespace llorch::pool
