// The fields of what a pool says about itself, for the messages that are made of them. Private to
// contract/.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "contract/fields.h"
#include "contract/pool_info.h"

namespace llorch::contract {

inline constexpr std::size_t kGpusMax = 256;
inline constexpr std::array<std::string_view, 6> kWorkerStates = {"starting", "ready",   "busy",
                                                                  "draining", "stopped", "failed"};
inline constexpr std::array<std::string_view, 7> kExitCategories = {
    "none", "stopped", "start_failed", "crash", "oom_kill", "timeout", "hang"};

// What a device's memory goes to: the parts of a whole need, and of each card's.
template <class V, class Need>
void describe_parts(V& v, Need& need) {
  v("weights_bytes", need.weights_bytes);
  v("kv_bytes", need.kv_bytes);
  v("scratch_bytes", need.scratch_bytes);
  v("runtime_bytes", need.runtime_bytes);
}

template <class V, Described<CardNeed> T>
void describe(V& v, T& card) {
  v("device", card.device);
  describe_parts(v, card);
}

template <class V, Described<MemoryNeed> T>
void describe(V& v, T& need) {
  describe_parts(v, need);
  v("host_bytes", need.host_bytes);
  v("context", need.context);
  v("slots", need.slots);
  v("kv_type", need.kv_type);
  v("kv_bytes_per_token", need.kv_bytes_per_token);
  v("kv_q8_0_bytes", need.kv_q8_0_bytes);
  v("cards", need.cards, {.omit_empty = true, .doc = "Of each GPU, where several share it."});
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
  v("start", worker.start);
  v("model_hash", worker.model_hash);
  v("device", worker.device, {.min = 0});
  v("build", worker.build);
  v("device_class", worker.device_class);
  v("can_resume", worker.can_resume);
  v("on_demand", worker.on_demand);
  v("ready_in_ms", worker.ready_in_ms, {.min = 0});
  v("promised_bytes", worker.promised_bytes);
  v("kv_blocks_total", worker.kv_blocks_total);
  v("kv_blocks_free", worker.kv_blocks_free);
  v("state", worker.state, {.must = true, .names = kWorkerStates});
  v("category", worker.category, {.must = true, .names = kExitCategories});
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

}  // namespace llorch::contract
