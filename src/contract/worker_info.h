// What a worker says about itself: the answer of GET /health and the ready callback.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::contract {

enum class WorkerStatus : std::uint8_t { Healthy, Loading, Unhealthy, Draining };

std::string_view name(WorkerStatus status);  // "healthy", "loading", "unhealthy", "draining"

// 200 for a healthy worker, 503 for every other.
int http_status(WorkerStatus status);

// Everything behind memory_type is what the contract calls "plus". Text about the model is empty
// and its numbers are 0 until it is loaded.
struct HealthReport {
  WorkerStatus status = WorkerStatus::Loading;
  bool model_loaded = false;
  std::int64_t vram_bytes = 0;
  std::string memory_type = "cpu";  // or "vram-only"

  std::optional<double> load_progress;  // 0..1, while loading
  bool chat_template = false;           // whether /v1/chat/completions has a form for messages
  std::string reason;                   // why it is unhealthy
  std::string model;
  std::string architecture;
  std::string quant_kind;
  std::string tokenizer_kind;
  std::string backend;
  std::string device;
  std::string version;
  // Workers whose model, backend, build and device class are equal compute the same bits.
  std::string build;         // "0.1.0+4f6c21d09ab3.glibc2.36"
  std::string device_class;  // "cpu-avx512", "cuda-sm90"
  std::int64_t memory_bytes = 0;
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  double uptime_seconds = 0;
  std::int64_t queue_depth = 0;
  std::int64_t slots_total = 0;
  std::int64_t slots_busy = 0;
  std::int64_t kv_blocks_total = 0;
  std::int64_t kv_blocks_free = 0;
  std::optional<std::int64_t> last_token_age_ms;  // none: no token yet

  // Of a worker whose model lies in a GPU's own memory.
  std::optional<std::int32_t> sm;          // compute capability: 90 is 9.0
  std::string cuda_runtime_version;        // "13.0"
  std::optional<std::int64_t> vram_total;  // bytes, of all its GPUs
  std::optional<bool> resident;            // weights and cache are there, and nowhere else

  friend bool operator==(const HealthReport&, const HealthReport&) = default;
};

json::Object to_json(const HealthReport& report);
// From another program of ours: read tolerantly, Internal when it breaks the contract.
Result<HealthReport> parse_health_report(std::string_view body);
template <>
json::Object schema_of<HealthReport>();

// Proves that a ready callback comes from the worker that was started: what the environment
// variable of its process says goes back in the header.
inline constexpr const char* kWorkerMarkVariable = "LLORCH_WORKER_MARK";
inline constexpr std::string_view kWorkerMarkHeader = "X-Llorch-Worker-Mark";

// POST <callback-url>: a worker is ready.
struct ReadyCallback {
  std::string worker_id;
  std::string uri;        // where the worker answers: "http://127.0.0.1:8000"
  std::string model_ref;  // what it was told to load
  std::int64_t memory_bytes = 0;
  std::string memory_architecture = "cpu";  // or "vram-only"
  std::string worker_type;                  // "llorch-cpud", "worker-orcd"
  std::vector<std::string> capabilities = {"text-gen"};
  std::string version;

  friend bool operator==(const ReadyCallback&, const ReadyCallback&) = default;
};

json::Object to_json(const ReadyCallback& callback);
Result<ReadyCallback> parse_ready_callback(std::string_view body);
template <>
json::Object schema_of<ReadyCallback>();

}  // namespace llorch::contract
