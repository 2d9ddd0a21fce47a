#include "contract/pool_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "contract/backend_kind.h"
#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

constexpr std::int32_t kContextMax = 16'777'216;
constexpr std::int32_t kSlotsMax = 256;
constexpr std::int32_t kGpuMax = 255;
constexpr std::size_t kGpusMax = 256;

constexpr std::array<std::string_view, 2> kBackends = {kCpu, kCuda};
constexpr std::array<std::string_view, 2> kKvTypes = {"f16", "q8_0"};
constexpr std::array<std::string_view, 6> kStates = {"starting", "ready",   "busy",
                                                     "draining", "stopped", "failed"};
constexpr std::array<std::string_view, 7> kCategories = {
    "none", "stopped", "start_failed", "crash", "oom_kill", "timeout", "hang"};

}  // namespace

template <class V, Described<MemoryNeed> T>
void describe(V& v, T& need) {
  v("weights_bytes", need.weights_bytes);
  v("kv_bytes", need.kv_bytes);
  v("scratch_bytes", need.scratch_bytes);
  v("runtime_bytes", need.runtime_bytes);
  v("host_bytes", need.host_bytes);
  v("context", need.context);
  v("slots", need.slots);
  v("kv_type", need.kv_type);
  v("kv_bytes_per_token", need.kv_bytes_per_token);
  v("kv_q8_0_bytes", need.kv_q8_0_bytes);
  v.derived("device_bytes", need.device_bytes());
}

template <class V, Described<PoolWorker> T>
void describe(V& v, T& worker) {
  v("id", worker.id, {.must = true, .bytes = {.min_bytes = 1}});
  v("backend", worker.backend);
  v("model", worker.model);
  v("uri", worker.uri);
  v("pid", worker.pid);
  v("gpu", worker.gpu);
  v("started_at", worker.started_at);
  v("ready_at", worker.ready_at);
  v("ended_at", worker.ended_at);
  v("load_progress", worker.load_progress, {.min = 0, .max = 1});
  v("memory_bytes", worker.memory_bytes);
  v("memory_peak_bytes", worker.memory_peak_bytes);
  v("vram_bytes", worker.vram_bytes);
  v("context", worker.context);
  v("slots", worker.slots);
  v("slots_busy", worker.slots_busy);
  v("queue_depth", worker.queue_depth);
  v("tokens_per_second", worker.tokens_per_second);
  v("last_token_age_ms", worker.last_token_age_ms);
  v("reason", worker.reason);
  v("exit_code", worker.exit_code);
  v("exit_signal", worker.exit_signal);
  v("last_log_lines", worker.last_log_lines);
  v("log_file", worker.log_file);
  v("trusted", worker.trusted);
  v("state", worker.state, {.must = true, .names = kStates});
  v("category", worker.category, {.must = true, .names = kCategories});
  v("planned", worker.planned);
}

template <class V, Described<GpuInfo> T>
void describe(V& v, T& gpu) {
  v("index", gpu.index);
  v("name", gpu.name);
  v("uuid", gpu.uuid);
  v("driver", gpu.driver);
  v("vram_total_bytes", gpu.vram_total_bytes);
  v("vram_free_bytes", gpu.vram_free_bytes);
  v("power_watts", gpu.power_watts);
  v("temperature_celsius", gpu.temperature_celsius);
  v("utilization", gpu.utilization);
}

template <class V, Described<HostInfo> T>
void describe(V& v, T& host) {
  v("hostname", host.hostname);
  v("os", host.os);
  v("cpu", host.cpu);
  v("isa", host.isa);
  v("cores", host.cores);
  v("threads", host.threads);
  v("memory_total_bytes", host.memory_total_bytes);
  v("memory_free_bytes", host.memory_free_bytes);
  v("disk_free_bytes", host.disk_free_bytes);
  v("gpu_note", host.gpu_note);
  v("gpus", host.gpus, {.max_items = kGpusMax});
}

template <class V, Described<StartWorkerRequest> T>
void describe(V& v, T& request) {
  v("backend", request.backend, {.must = true, .names = kBackends});
  v("model", request.model, {.must = true, .bytes = {1, 128}});
  v("gpu", request.gpu, {.min = 0, .max = kGpuMax});
  v("ctx", request.context, {.min = kContextTokensMin, .max = kContextMax});
  v("slots", request.slots, {.min = 1, .max = kSlotsMax});
  v("kv", request.kv_type, {.names = kKvTypes, .omit_empty = true});
}

std::string_view name(PoolWorkerState state) {
  return kStates[static_cast<std::size_t>(state)];
}
std::string_view name(ExitCategory category) {
  return kCategories[static_cast<std::size_t>(category)];
}

std::int64_t cache_tokens(std::int32_t context, std::int32_t slots) {
  // Few requests fill a long context; more than this is not kept ready for each of them.
  constexpr std::int32_t kUsualTokens = 4096;
  const auto whole_blocks = [](std::int64_t tokens) {
    return (tokens + kCacheBlockTokens - 1) / kCacheBlockTokens * kCacheBlockTokens;
  };
  return std::max(whole_blocks(context), whole_blocks(std::min(context, kUsualTokens)) * slots);
}

json::Object to_json(const MemoryNeed& need) {
  return write_fields(need);
}

Result<MemoryNeed> parse_memory_need(const json::Value& value) {
  return read_peer<MemoryNeed>("memory need", value);
}

json::Object to_json(const StartWorkerRequest& request) {
  return write_fields(request);
}

StartWorkerRequest parse_start_worker_request(const json::Object& body,
                                              std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  FieldTaker taker(reader);
  StartWorkerRequest request;
  describe(taker, request);
  if (request.gpu && request.backend == kCpu)
    reader.fail("gpu", "cuda only",
                "a worker on the CPU has no GPU: leave gpu out or ask for cuda");
  for (json::FieldError& error : reader.finish()) errors.push_back(std::move(error));
  return request;
}

json::Object to_json(const PoolWorker& worker) {
  return write_fields(worker);
}

Result<PoolWorker> parse_pool_worker(const json::Value& value) {
  return read_peer<PoolWorker>("worker", value);
}

json::Object to_json(const HostInfo& host) {
  return write_fields(host);
}

Result<HostInfo> parse_host_info(const json::Value& value) {
  return read_peer<HostInfo>("host", value);
}

template <>
json::Object schema_of<MemoryNeed>() {
  return described_schema<MemoryNeed>(SchemaOf::Answer);
}
template <>
json::Object schema_of<StartWorkerRequest>() {
  return described_schema<StartWorkerRequest>(SchemaOf::Request);
}
template <>
json::Object schema_of<PoolWorker>() {
  return described_schema<PoolWorker>(SchemaOf::Answer);
}
template <>
json::Object schema_of<HostInfo>() {
  return described_schema<HostInfo>(SchemaOf::Answer);
}

}  // namespace llorch::contract
