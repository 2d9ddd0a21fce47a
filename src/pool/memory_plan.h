// Does a model fit? What a worker needs, set against what a device has: a pure decision, and where
// its numbers come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/json.h"
#include "base/result.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"

namespace llorch::pool {

// What is asked about.
struct PlanRequest {
  std::string backend;                  // "cpu" or "cuda"
  std::optional<std::int32_t> gpu;      // none: every one
  std::optional<std::int32_t> context;  // none: the model's own, or the most that fits
  std::optional<std::int32_t> slots;    // none: the worker's own, or fewer when only those fit
  std::string kv_type;                  // empty: f16
};
template <class V, contract::Described<PlanRequest> T>
void describe(V& v, T& request) {
  v("backend", request.backend, {.names = contract::kBackendNames});
  v("gpu", request.gpu, {.min = 0, .max = contract::kGpuNumberMax});
  v("ctx", request.context,
    {.min = contract::kContextTokensMin, .max = contract::kContextTokensMax});
  v("slots", request.slots, {.min = 1, .max = contract::kSlotsMax});
  v("kv", request.kv_type, {.names = contract::kKvTypes});
}

// One device's answer.
struct MemoryPlan {
  std::string device;                          // "cpu", "cuda:0"
  contract::MemoryNeed need;                   // as the worker program computes it
  std::optional<std::int64_t> measured_bytes;  // the peak of an earlier load of the same kind
  std::int64_t margin_bytes = 0;               // kept free beside it
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
  bool fits = false;   // required_bytes() + margin_bytes <= free_bytes
  std::string advice;  // when it does not: "fits with --ctx 8192", "needs 3.1 GiB more"

  // What is set against the free memory: measured where there is a measurement, else the need.
  std::int64_t required_bytes() const;
};
template <class V, contract::Described<MemoryPlan> T>
void describe(V& v, T& plan) {
  v("device", plan.device);
  v("need", plan.need);
  v.derived("required_bytes", plan.required_bytes());
  v("margin_bytes", plan.margin_bytes);
  v("free_bytes", plan.free_bytes);
  v("total_bytes", plan.total_bytes);
  v("fits", plan.fits);
  v("advice", plan.advice);
  v("measured_bytes", plan.measured_bytes);
}

// What is kept free beside a worker: a twentieth of what it requires, for what no plan knows
// (answers on their way, the allocator's holes), and at least a quarter of a GiB (half of one on a
// GPU, where others' drawing and caches come and go), for the rest of the system; on small machines
// a sixteenth of the whole is enough.
std::int64_t margin_bytes(std::string_view device, std::int64_t required_bytes,
                          std::int64_t total_bytes);

// The plan for one device, given what the worker said. Pure.
MemoryPlan judge(const contract::MemoryNeed& need, std::optional<std::int64_t> measured_bytes,
                 std::string device, std::int64_t free_bytes, std::int64_t total_bytes);

// The context and slots to take where the request leaves them open: all slots and the whole context
// when that fits, else the longest context with as many slots as leave each request the usual
// length. `need` is what the worker said to the request. Pure. Nothing when nothing fits.
struct Choice {
  std::int32_t context = 0;
  std::int32_t slots = 0;
};
std::optional<Choice> choose(const contract::MemoryNeed& need, const PlanRequest& request,
                             std::string_view device, std::int64_t free_bytes,
                             std::int64_t total_bytes);

// Asks the worker program itself ("--plan-memory"), which loads nothing: a few milliseconds. Finds
// the largest context that fits where none was asked for. One plan for each device asked about. A
// backend or GPU that is not here is an error with what there is instead. Unavailable: somebody
// killed the program, which says nothing about the model.
struct Planner {
  std::filesystem::path worker_cpu;   // llorch-cpud
  std::filesystem::path worker_cuda;  // worker-orcd
  const std::filesystem::path& program(const contract::BackendKind& kind) const {
    return kind.needs_gpu ? worker_cuda : worker_cpu;
  }
  std::filesystem::path measurements_file;
  // It looks into the model's file: confined as a worker is, with the few variables of one.
  base::Home home;
  base::Environment environment;  // null: nothing of it
  bool confine = true;

  Result<std::vector<MemoryPlan>> plan(const contract::ModelEntry& model,
                                       const PlanRequest& request,
                                       const contract::HostInfo& host) const;
  // Keeps the measured peak of a load for later plans of the same model, backend, context, slots
  // and cache type.
  Status keep_measurement(const contract::ModelEntry& model, std::string_view backend,
                          const contract::MemoryNeed& need, std::int64_t peak_bytes) const;
};

// The worker's flags that make it use exactly what was planned.
std::vector<std::string> worker_flags(const contract::MemoryNeed& need);

}  // namespace llorch::pool
