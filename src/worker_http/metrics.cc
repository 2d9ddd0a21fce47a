#include "worker_http/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/version.h"

namespace llorch::worker_http {
namespace {

constexpr std::array<std::string_view, kNumOutcomes> kOutcomeNames = {
    "max_tokens", "eos",        "stop_sequence", "cancelled",  "timeout",
    "failed",     "queue_full", "refused",       "unavailable"};

void append_stats(std::string& out, const WorkerStats& stats) {
  api::append_value(out, "llorch_prompt_tokens_total", "counter", "Prompt tokens computed.",
                    stats.prompt_tokens_total);
  api::append_value(out, "llorch_cached_tokens_total", "counter",
                    "Prompt tokens found in the prefix cache.", stats.cached_tokens_total);
  api::append_value(out, "llorch_output_tokens_total", "counter", "Tokens generated.",
                    stats.output_tokens_total);
  api::append_value(out, "llorch_steps_total", "counter", "Forward passes of the engine.",
                    stats.steps_total);
  api::append_value(out, "llorch_preemptions_total", "counter",
                    "Sequences that lost their cache blocks and were computed again.",
                    stats.preemptions_total);
  api::append_value(out, "llorch_decode_tokens_per_second", "gauge",
                    "Tokens per second over the last seconds.", stats.decode_tokens_per_second);
  api::append_value(out, "llorch_queue_depth", "gauge", "Requests that wait.", stats.queue_depth);
  api::append_value(out, "llorch_slots", "gauge", "Sequences that can run at once.",
                    stats.slots_total);
  api::append_value(out, "llorch_slots_busy", "gauge", "Sequences that run.", stats.slots_busy);
  api::append_value(out, "llorch_kv_blocks", "gauge", "Cache blocks in all.",
                    stats.kv_blocks_total);
  api::append_value(out, "llorch_kv_blocks_free", "gauge", "Cache blocks that nobody holds.",
                    stats.kv_blocks_free);
  api::append_value(out, "llorch_uptime_seconds", "gauge", "Since the process started.",
                    stats.uptime_seconds);
}

void append_vram(std::string& out, const VramInfo& vram) {
  api::append_head(out, "llorch_vram_bytes", "gauge", "GPU memory that this worker takes.");
  for (const auto& [purpose, bytes] :
       {std::pair{"weights", vram.weights_bytes}, std::pair{"cache", vram.cache_bytes},
        std::pair{"workspace", vram.workspace_bytes}}) {
    fmt::format_to(std::back_inserter(out), "llorch_vram_bytes{{purpose=\"{}\"}} {}\n", purpose,
                   bytes);
  }
  api::append_value(out, "llorch_vram_total_bytes", "gauge", "GPU memory that there is.",
                    vram.total_bytes);
}

// What no GPU tells makes no metric.
void append_gpus(std::string& out, const std::vector<base::GpuReading>& gpus) {
  const auto append = [&](std::string_view metric, std::string_view help,
                          std::optional<double> base::GpuReading::*value) {
    bool is_first = true;
    for (const base::GpuReading& gpu : gpus) {
      if (!(gpu.*value)) continue;
      if (std::exchange(is_first, false)) api::append_head(out, metric, "gauge", help);
      fmt::format_to(std::back_inserter(out), "{}{{gpu=\"{}\"}} {}\n", metric, api::label(gpu.uuid),
                     *(gpu.*value));
    }
  };
  append("llorch_gpu_power_watts", "What a GPU takes now, by its driver.",
         &base::GpuReading::power_watts);
  append("llorch_gpu_temperature_celsius", "Of a GPU's chip, by its driver.",
         &base::GpuReading::temperature_celsius);
}

void append_model(std::string& out, const InferenceBackend& backend) {
  const ModelInfo* model = backend.model();
  api::append_value(out, "llorch_model_loaded", "gauge", "1 once the model is loaded.",
                    model != nullptr ? 1 : 0);
  if (model == nullptr) return;
  api::append_value(out, "llorch_memory_bytes", "gauge", "Memory that weights and cache take.",
                    model->memory_bytes);
  if (model->vram) append_vram(out, *model->vram);
  append_gpus(out, backend.read_gpus());
  api::append_head(out, "llorch_build_info", "gauge", "What runs here.");
  fmt::format_to(std::back_inserter(out),
                 "llorch_build_info{{version=\"{}\",model=\"{}\",architecture=\"{}\","
                 "quant_kind=\"{}\",backend=\"{}\"}} 1\n",
                 base::version(), api::label(model->id), api::label(model->architecture),
                 api::label(model->quant_kind), api::label(model->backend));
}

}  // namespace

std::string_view name(Outcome outcome) {
  return kOutcomeNames[static_cast<std::size_t>(outcome)];
}

Outcome outcome_of(const Result<contract::InferenceResult>& result) {
  if (!result.ok()) {
    if (result.error().code == ErrorCode::Cancelled) return Outcome::Cancelled;
    if (result.error().code == ErrorCode::DeadlineExceeded) return Outcome::Timeout;
    if (result.error().code == ErrorCode::Unavailable) return Outcome::Unavailable;
    return Outcome::Failed;
  }
  switch (result->stop_reason) {
    case contract::StopReason::MaxTokens:
      return Outcome::MaxTokens;
    case contract::StopReason::Eos:
      return Outcome::Eos;
    case contract::StopReason::StopSequence:
      return Outcome::StopSequence;
    case contract::StopReason::Cancelled:
      return Outcome::Cancelled;
  }
  return Outcome::Failed;
}

Outcome outcome_of_refusal(const Error& error) {
  if (error.code == ErrorCode::QueueFull) return Outcome::QueueFull;
  if (error.code == ErrorCode::Unavailable) return Outcome::Unavailable;
  return Outcome::Refused;
}

void Metrics::record(const Result<contract::InferenceResult>& result, std::int64_t told,
                     double queue_ms, double total_ms) {
  count(outcome_of(result));
  total_.add(total_ms / 1000);
  if (!result.ok()) return;
  queue_.add(queue_ms / 1000);
  const std::int64_t made = result->tokens_out - told;
  if (made > 0) first_token_.add(result->ttft_ms / 1000);
  if (made > 1) {
    per_token_.add(static_cast<double>(result->decode_time_ms) / 1000 /
                   static_cast<double>(made - 1));
  }
}

std::string Metrics::render(const InferenceBackend& backend) const {
  std::string out;
  api::append_head(out, "llorch_requests_total", "counter", "Requests for text by how they ended.");
  for (std::size_t i = 0; i < kNumOutcomes; ++i) {
    fmt::format_to(std::back_inserter(out), "llorch_requests_total{{outcome=\"{}\"}} {}\n",
                   kOutcomeNames[i], requests_[i].load());
  }
  queue_.append_to(out, "llorch_queue_seconds", "From arrival to the first computation.");
  first_token_.append_to(out, "llorch_first_token_seconds", "From arrival to the first token.");
  per_token_.append_to(out, "llorch_token_seconds", "Mean time between the tokens of a request.");
  total_.append_to(out, "llorch_request_seconds", "From arrival to the end.");
  append_stats(out, backend.stats());
  append_model(out, backend);
  return out;
}

}  // namespace llorch::worker_http
