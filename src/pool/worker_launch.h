// From a request to a process: the checks before a start, the port, and everything the worker is
// started with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "pool/memory_plan.h"
#include "pool/pool_manager.h"
#include "pool/pool_sources.h"
#include "pool/worker_record.h"

namespace llorch::pool {

// A start that was found possible.
struct PreparedStart {
  contract::StartWorkerRequest request;
  contract::ModelEntry model;
  MemoryPlan plan;
  std::string trusted;     // what the belief in its files rests on
  std::string model_hash;  // empty: nobody says
};

// Memory that running workers will still take: planned, and not yet gone from what the system calls
// free. (The pages of a mapped weight file stay "free" for the kernel as long as it may drop them.)
struct PromisedMemory {
  std::int64_t host_bytes = 0;
  std::map<std::int32_t, std::int64_t> vram_bytes;  // by GPU
};

// The model is here and whole, the backend can run it, the device is there, and the memory plan
// fits. Every refusal says what was found and what to do.
Result<PreparedStart> prepare_start(const contract::StartWorkerRequest& request,
                                    const PoolSources& sources, const PromisedMemory& promised);

bool is_port_free(std::uint16_t port);  // on 127.0.0.1, now
// The first free one at or above `first` that is not in `taken`.
Result<std::uint16_t> find_free_port(std::uint32_t first, const std::set<std::uint16_t>& taken);

struct LaunchNames {
  std::string id;
  std::uint16_t port = 0;
  std::string mark;
};
LaunchPlan make_launch(const PreparedStart& start, const PoolManagerOptions& options,
                       const LaunchNames& names);

// The same plan on another port.
void set_port(LaunchPlan& launch, std::uint16_t port);
void set_mark(LaunchPlan& launch, std::string_view mark);

std::filesystem::path pool_lock_file(const base::Home& home);

}  // namespace llorch::pool
