#include "contract/worker_info.h"

#include <array>

#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"healthy", "loading", "unhealthy",
                                                          "draining"};
constexpr FieldRule kCount{.min = 0};

}  // namespace

template <class V, Described<HealthReport> T>
void describe(V& v, T& report) {
  v("status", report.status, {.must = true, .names = kStatusNames});
  v("model_loaded", report.model_loaded, {.must = true});
  v("vram_bytes", report.vram_bytes, {.must = true, .min = 0});
  v("memory_type", report.memory_type, {.must = true, .doc = "\"cpu\" or \"vram-only\"."});
  v("load_progress", report.load_progress, {.min = 0, .max = 1});
  v("reason", report.reason, {.omit_empty = true, .doc = "Why it is unhealthy."});
  v("model", report.model);
  v("architecture", report.architecture);
  v("quant_kind", report.quant_kind);
  v("tokenizer_kind", report.tokenizer_kind);
  v("backend", report.backend);
  v("device", report.device);
  v("version", report.version);
  v("build", report.build,
    {.doc = "Equal where model, prompts and numbers are worked out in the same way."});
  v("device_class", report.device_class,
    {.doc = "\"cpu-avx512\": workers of one build and one class give the same bits."});
  v("memory_bytes", report.memory_bytes, kCount);
  v("vocab_size", report.vocab_size, kCount);
  v("context_length", report.context_length, kCount);
  v("queue_depth", report.queue_depth, kCount);
  v("slots_total", report.slots_total, kCount);
  v("slots_busy", report.slots_busy, kCount);
  v("kv_blocks_total", report.kv_blocks_total, kCount);
  v("kv_blocks_free", report.kv_blocks_free, kCount);
  v("chat_template", report.chat_template,
    {.doc = "Whether the model has one: /v1/chat/completions needs it."});
  v("uptime_seconds", report.uptime_seconds, {.min = 0, .thousandths = true});
  v("last_token_age_ms", report.last_token_age_ms, {.min = 0, .null_when_absent = true});
  v("sm", report.sm, {.min = 0, .doc = "A GPU's compute capability: 90 is 9.0."});
  v("cuda_runtime_version", report.cuda_runtime_version, {.omit_empty = true});
  v("vram_total", report.vram_total, {.min = 0, .doc = "Bytes of all GPUs of this worker."});
  v("resident", report.resident,
    {.doc = "Whether weights and cache lie in the GPU's own memory, all of them."});
}

template <class V, Described<ReadyCallback> T>
void describe(V& v, T& callback) {
  v("worker_id", callback.worker_id, {.must = true});
  v("uri", callback.uri, {.must = true});
  v("model_ref", callback.model_ref, {.must = true});
  v("memory_bytes", callback.memory_bytes, {.must = true, .min = 0});
  v("memory_architecture", callback.memory_architecture, {.must = true});
  v("worker_type", callback.worker_type, {.must = true});
  v("capabilities", callback.capabilities, {.must = true, .max_items = 64});
  v("version", callback.version, {.must = true});
}

std::string_view name(WorkerStatus status) {
  return kStatusNames[static_cast<std::size_t>(status)];
}

int http_status(WorkerStatus status) {
  return status == WorkerStatus::Healthy ? 200 : 503;
}

json::Object to_json(const HealthReport& report) {
  return write_fields(report);
}

Result<HealthReport> parse_health_report(std::string_view body) {
  return parse_peer<HealthReport>("health report", body);
}

json::Object to_json(const ReadyCallback& callback) {
  return write_fields(callback);
}

Result<ReadyCallback> parse_ready_callback(std::string_view body) {
  return parse_peer<ReadyCallback>("ready callback", body);
}

template <>
json::Object schema_of<HealthReport>() {
  return described_schema<HealthReport>(SchemaOf::Answer);
}
// A newer worker may say more.
template <>
json::Object schema_of<ReadyCallback>() {
  return described_schema<ReadyCallback>(SchemaOf::Answer, true);
}

}  // namespace llorch::contract
