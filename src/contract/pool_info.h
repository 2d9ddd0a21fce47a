// What a pool says about its workers, devices and memory, and what it is asked to do: the values of
// the pool's API and their JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/backend_kind.h"
#include "contract/fields.h"

namespace llorch::contract {

enum class PoolWorkerState : std::uint8_t { Starting, Ready, Busy, Draining, Stopped, Failed };
std::string_view name(PoolWorkerState state);  // "starting", …

// Why a worker ended.
enum class ExitCategory : std::uint8_t {
  None,         // it runs, or never did
  Stopped,      // it was asked to
  StartFailed,  // it ended by itself before it was ready: bad model, bad flags
  Crash,        // a signal of its own making, or an exit code nobody asked for
  OomKill,      // the kernel took its memory back
  Timeout,      // not ready within its deadline
  Hang,         // it answered no health check, or made no token while it had work
};
std::string_view name(
    ExitCategory category);  // "none", "stopped", "start_failed", "crash", "oom_kill", …

// Tokens that a worker's cache has room for, unless its --kv-memory says otherwise: one whole
// context, and for each slot as much as most requests use. Whole blocks of kCacheBlockTokens.
inline constexpr std::int32_t kCacheBlockTokens = 16;
std::int64_t cache_tokens(std::int32_t context, std::int32_t slots);

// What a worker takes on one of several GPUs that share its layers.
struct CardNeed {
  std::string device;  // "cuda:1"
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t runtime_bytes = 0;

  friend bool operator==(const CardNeed&, const CardNeed&) = default;
};

// The memory one worker needs, in parts. On a GPU, `device` parts are VRAM and `host_bytes` is what
// the process needs beside them; on the CPU everything is host memory and host_bytes is 0.
struct MemoryNeed {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t scratch_bytes = 0;  // step buffers and the backend's own
  std::int64_t runtime_bytes = 0;  // program, tokenizer, libraries, device context
  std::int64_t host_bytes = 0;     // GPU workers only
  std::int32_t context = 0;        // tokens one sequence may have
  std::int32_t slots = 0;          // sequences at once
  std::string kv_type;             // "f16", "q8_0"
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_q8_0_bytes = 0;  // what kv_bytes would be as q8_0; 0: it is, or it cannot be
  std::vector<CardNeed> cards;     // where several GPUs share it: each one's part of the above

  std::int64_t device_bytes() const {
    return weights_bytes + kv_bytes + scratch_bytes + runtime_bytes;
  }
  friend bool operator==(const MemoryNeed&, const MemoryNeed&) = default;
};
json::Object to_json(const MemoryNeed& need);
Result<MemoryNeed> parse_memory_need(const json::Value& value);
template <>
json::Object schema_of<MemoryNeed>();

// The shortest context that a worker is started with: less has no room for a prompt and an answer.
inline constexpr std::int64_t kContextTokensMin = 16;
inline constexpr std::int32_t kContextTokensMax = 16'777'216;
inline constexpr std::int32_t kSlotsMax = 256;
inline constexpr std::int32_t kGpuNumberMax = 255;
inline constexpr std::array<std::string_view, 2> kKvTypes = {"f16", "q8_0"};
// The built-in ones that a worker knows.
inline constexpr std::array<std::string_view, 9> kChatTemplates = {
    "chatml", "deepseek", "gemma", "llama2", "llama3", "mistral", "phi3", "vicuna", "zephyr"};

// POST /v2/workers/start, and `llorch-pool worker spawn`.
struct StartWorkerRequest {
  std::string backend;                  // "cpu" or "cuda"
  std::string model;                    // a catalog id
  std::optional<std::int32_t> gpu;      // cuda only; none: 0
  std::optional<std::int32_t> context;  // none: the model's own, or what fits
  std::optional<std::int32_t> slots;
  std::string kv_type;  // empty: f16
  std::string
      chat_template;       // a built-in one's name or a file's whole path; empty: the model's own
  bool on_demand = false;  // an orchestrator's, for its jobs: it may stop it when they are done

  friend bool operator==(const StartWorkerRequest&, const StartWorkerRequest&) = default;
};
json::Object to_json(const StartWorkerRequest& request);
// Every failure at once. The request is good when `errors` stays empty.
StartWorkerRequest parse_start_worker_request(const json::Object& body,
                                              std::vector<json::FieldError>& errors);
template <>
json::Object schema_of<StartWorkerRequest>();

// One worker as GET /v2/workers/{id} shows it.
struct PoolWorker {
  std::string id;  // "worker-cpu-0"
  std::string backend;
  std::string model;  // catalog id
  PoolWorkerState state = PoolWorkerState::Starting;
  std::string uri;  // "http://127.0.0.1:8001"; empty until the process listens
  std::int64_t pid = 0;
  std::optional<std::int32_t> gpu;
  std::string started_at;    // RFC 3339, UTC
  std::string ready_at;      // empty: not yet
  std::string ended_at;      // empty: it runs
  double load_progress = 0;  // 0..1

  // Its birth: the next process under the same id has another, also after a restart of the manager.
  std::uint32_t start = 0;
  std::string model_hash;   // of what it loaded: see pool_state.h
  std::int32_t device = 0;  // number on its host: 0 the CPU, 1 + n GPU n
  // Workers whose model_hash, backend, build and device class are equal compute the same bits.
  std::string build;                        // empty: it has not said yet, or is older than that
  std::string device_class;                 // the same
  bool can_resume = false;                  // its /execute takes `resume`
  bool on_demand = false;                   // as it was asked for: else somebody's own, and stays
  std::optional<std::int64_t> ready_in_ms;  // while it starts, where there is something to go by

  std::string trusted;  // what the belief rests on that its model's files are right; a sentence

  MemoryNeed planned;
  std::int64_t memory_bytes = 0;       // resident now
  std::int64_t memory_peak_bytes = 0;  // the most it ever had
  std::int64_t vram_bytes = 0;
  std::int64_t promised_bytes = 0;  // of its plan, that its device still calls free

  std::int32_t context = 0;
  std::int32_t slots = 0;
  std::int32_t slots_busy = 0;
  std::int64_t kv_blocks_total = 0;  // of kCacheBlockTokens each
  std::int64_t kv_blocks_free = 0;
  std::int64_t queue_depth = 0;
  double tokens_per_second = 0;  // over the last few seconds
  std::optional<std::int64_t> last_token_age_ms;

  ExitCategory category = ExitCategory::None;
  std::string reason;  // a sentence: why it failed, or what it waits for
  std::optional<std::int32_t> exit_code;
  std::optional<std::int32_t> exit_signal;
  std::vector<std::string> last_log_lines;  // once it has failed
  std::string log_file;

  friend bool operator==(const PoolWorker&, const PoolWorker&) = default;
};
json::Object to_json(const PoolWorker& worker);
Result<PoolWorker> parse_pool_worker(const json::Value& value);
template <>
json::Object schema_of<PoolWorker>();

struct GpuInfo {
  std::int32_t index = 0;
  std::string name;
  std::string uuid;
  std::string driver;
  std::int64_t vram_total_bytes = 0;
  std::int64_t vram_free_bytes = 0;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> utilization;  // 0..1

  friend bool operator==(const GpuInfo&, const GpuInfo&) = default;
};

struct HostInfo {
  std::string hostname;
  std::string os;            // "Debian GNU/Linux 12, Linux 6.1.0"
  std::string cpu;           // model name
  std::string isa;           // "AVX-512", "AVX2", "SSE4"
  std::int32_t cores = 0;    // that this process may use: affinity and cgroup quota counted
  std::int32_t threads = 0;  // that the machine has
  std::int64_t memory_total_bytes = 0;  // or the cgroup's limit, where that is smaller
  std::int64_t memory_free_bytes = 0;   // that can be had without swapping
  std::int64_t disk_free_bytes = 0;     // where models live
  std::vector<GpuInfo> gpus;
  std::string gpu_note;  // why there are none: "no NVIDIA driver"; empty when there are some

  friend bool operator==(const HostInfo&, const HostInfo&) = default;
};
json::Object to_json(const HostInfo& host);
Result<HostInfo> parse_host_info(const json::Value& value);
template <>
json::Object schema_of<HostInfo>();

}  // namespace llorch::contract
