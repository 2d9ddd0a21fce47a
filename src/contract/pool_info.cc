#include "contract/pool_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "contract/backend_kind.h"
#include "contract/mirror.h"
#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

constexpr std::int32_t kContextMax = 16'777'216;
constexpr std::int32_t kSlotsMax = 256;
constexpr std::int32_t kGpuMax = 255;
constexpr std::size_t kGpusMax = 256;

constexpr std::array<std::string_view, 6> kStates = {"starting", "ready",   "busy",
                                                     "draining", "stopped", "failed"};
constexpr std::array<std::string_view, 7> kCategories = {
    "none", "stopped", "start_failed", "crash", "oom_kill", "timeout", "hang"};

template <class Enum, std::size_t N>
std::optional<Enum> from_name(const std::array<std::string_view, N>& names, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

template <class V, class T>
void visit_need(V& v, T& need) {
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
}

template <class V, class T>
void visit_worker(V& v, T& worker) {
  v("id", worker.id);
  v("backend", worker.backend);
  v("model", worker.model);
  v("uri", worker.uri);
  v("pid", worker.pid);
  v("gpu", worker.gpu);
  v("started_at", worker.started_at);
  v("ready_at", worker.ready_at);
  v("ended_at", worker.ended_at);
  v("load_progress", worker.load_progress);
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
}

template <class V, class T>
void visit_gpu(V& v, T& gpu) {
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

template <class V, class T>
void visit_host(V& v, T& host) {
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
}

Result<const json::Object*> object_of(std::string_view what, const json::Value& value) {
  if (value.is_object()) return &value.get_object();
  return Error{ErrorCode::Internal,
               fmt::format("{}: expected an object, found {}", what, json::kind_name(value))};
}

// A name of one of our lists, or a failure of its field.
template <class Enum, std::size_t N>
Enum read_name(json::FieldReader& reader, std::string_view field,
               const std::array<std::string_view, N>& names) {
  const std::string text = reader.required_string(field);
  const std::optional<Enum> found = from_name<Enum>(names, text);
  if (!found) reader.fail(field, "known name", "is unknown: " + base::quoted(text));
  return found.value_or(Enum{});
}

}  // namespace

std::string_view name(PoolWorkerState state) {
  return kStates[static_cast<std::size_t>(state)];
}
std::optional<PoolWorkerState> pool_worker_state_from_name(std::string_view text) {
  return from_name<PoolWorkerState>(kStates, text);
}
std::string_view name(ExitCategory category) {
  return kCategories[static_cast<std::size_t>(category)];
}
std::optional<ExitCategory> exit_category_from_name(std::string_view text) {
  return from_name<ExitCategory>(kCategories, text);
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
  json::Object object;
  MirrorWriter writer(object);
  visit_need(writer, need);
  object["device_bytes"] = need.device_bytes();
  return object;
}

Result<MemoryNeed> parse_memory_need(const json::Value& value) {
  constexpr std::string_view kWhat = "memory need";
  const Result<const json::Object*> object = object_of(kWhat, value);
  if (!object.ok()) return object.error();
  json::FieldReader reader(**object);
  MemoryNeed need;
  MirrorReader mirror(reader);
  visit_need(mirror, need);
  if (Status good = check_peer_object(kWhat, reader, **object); !good.ok()) return good.error();
  return need;
}

json::Object to_json(const StartWorkerRequest& request) {
  json::Object object{{"backend", request.backend}, {"model", request.model}};
  MirrorWriter writer(object);
  writer("gpu", request.gpu);
  writer("ctx", request.context);
  writer("slots", request.slots);
  if (!request.kv_type.empty()) object["kv"] = request.kv_type;
  return object;
}

StartWorkerRequest parse_start_worker_request(const json::Object& body,
                                              std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  StartWorkerRequest request;
  request.backend = reader.required_string("backend");
  if (find_backend_kind(request.backend) == nullptr && body.contains("backend"))
    reader.fail("backend", "cpu|cuda", "must be cpu or cuda, not " + base::quoted(request.backend));
  request.model = reader.required_string("model", {1, 128});
  const auto narrow = [](std::optional<std::int64_t> number) -> std::optional<std::int32_t> {
    if (!number) return std::nullopt;
    return static_cast<std::int32_t>(*number);
  };
  request.gpu = narrow(reader.optional_integer("gpu", 0, kGpuMax));
  if (request.gpu && request.backend == kCpu)
    reader.fail("gpu", "cuda only",
                "a worker on the CPU has no GPU: leave gpu out or ask for cuda");
  request.context = narrow(reader.optional_integer("ctx", kContextTokensMin, kContextMax));
  request.slots = narrow(reader.optional_integer("slots", 1, kSlotsMax));
  request.kv_type = reader.optional_string("kv").value_or("");
  if (!request.kv_type.empty() && request.kv_type != "f16" && request.kv_type != "q8_0")
    reader.fail("kv", "f16|q8_0", "must be f16 or q8_0, not " + base::quoted(request.kv_type));
  for (json::FieldError& error : reader.finish()) errors.push_back(std::move(error));
  return request;
}

json::Object to_json(const PoolWorker& worker) {
  json::Object object;
  MirrorWriter writer(object);
  visit_worker(writer, worker);
  object["state"] = name(worker.state);
  object["category"] = name(worker.category);
  object["planned"] = to_json(worker.planned);
  return object;
}

Result<PoolWorker> parse_pool_worker(const json::Value& value) {
  constexpr std::string_view kWhat = "worker";
  const Result<const json::Object*> object = object_of(kWhat, value);
  if (!object.ok()) return object.error();
  json::FieldReader reader(**object);
  PoolWorker worker;
  MirrorReader mirror(reader);
  visit_worker(mirror, worker);
  worker.state = read_name<PoolWorkerState>(reader, "state", kStates);
  worker.category = read_name<ExitCategory>(reader, "category", kCategories);
  if (const json::Value* planned = reader.optional_value("planned")) {
    Result<MemoryNeed> need = parse_memory_need(*planned);
    if (!need.ok()) return need.error().in(kWhat);
    worker.planned = need.take();
  }
  if (worker.id.empty()) reader.fail("id", "required", "is missing");
  if (Status good = check_peer_object(kWhat, reader, **object); !good.ok()) return good.error();
  return worker;
}

json::Object to_json(const HostInfo& host) {
  json::Object object;
  MirrorWriter writer(object);
  visit_host(writer, host);
  json::Array gpus;
  for (const GpuInfo& gpu : host.gpus) {
    json::Object one;
    MirrorWriter gpu_writer(one);
    visit_gpu(gpu_writer, gpu);
    gpus.emplace_back(std::move(one));
  }
  object["gpus"] = std::move(gpus);
  return object;
}

Result<HostInfo> parse_host_info(const json::Value& value) {
  constexpr std::string_view kWhat = "host";
  const Result<const json::Object*> object = object_of(kWhat, value);
  if (!object.ok()) return object.error();
  json::FieldReader reader(**object);
  HostInfo host;
  MirrorReader mirror(reader);
  visit_host(mirror, host);
  if (const json::Array* gpus = reader.optional_array("gpus")) {
    if (gpus->size() > kGpusMax) reader.fail("gpus", "at most 256", "has too many elements");
    for (const json::Value& element : *gpus) {
      const Result<const json::Object*> gpu = object_of("gpu", element);
      if (!gpu.ok()) return gpu.error().in(kWhat);
      json::FieldReader gpu_reader(**gpu, "gpus.");
      MirrorReader gpu_mirror(gpu_reader);
      visit_gpu(gpu_mirror, host.gpus.emplace_back());
      reader.add(finish_tolerantly(gpu_reader, **gpu));
    }
  }
  if (Status good = check_peer_object(kWhat, reader, **object); !good.ok()) return good.error();
  return host;
}

}  // namespace llorch::contract
