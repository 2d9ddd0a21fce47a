// What the manager asks of the rest of this host: models, devices, memory. Tests answer themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "pool/memory_plan.h"

namespace llorch::pool {

// Any thread calls; all may take some milliseconds.
struct PoolSources {
  std::function<Result<contract::ModelEntry>(std::string_view id)> find_model;
  // Whether the model's files are right, and what that rests on (catalog/trust.h).
  std::function<Result<std::string>(const contract::ModelEntry& model)> trust;
  std::function<contract::HostInfo()> read_host;
  std::function<Result<std::vector<MemoryPlan>>(const contract::ModelEntry& model,
                                                const PlanRequest& request,
                                                const contract::HostInfo& host)>
      plan;
  std::function<std::vector<std::string>(const contract::MemoryNeed& need)> worker_flags;
  std::function<Status(const contract::ModelEntry& model, std::string_view backend,
                       const contract::MemoryNeed& need, std::int64_t peak_bytes)>
      keep_measurement;
  std::function<std::int64_t(std::int32_t gpu, std::int64_t pid)> vram_of_process;
  // What its contents are called (contract/pool_state.h); may be absent.
  std::function<std::string(const contract::ModelEntry& model)> model_hash;
};

// The catalog of `home` with the built-in model behind it, the devices of this machine, and what
// the worker programs say they need.
PoolSources system_sources(const base::Home& home, const Planner& planner);

}  // namespace llorch::pool
