// What a worker would take, said before it takes anything: `--plan-memory`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "contract/pool_info.h"
#include "worker/run_options.h"

namespace llorch::worker {

// Loads the model onto a backend that only counts, and adds what the process takes beside it.
// `devices`: "cpu" or "cuda:N"…, which need not be there; several are taken to be equal. What is
// free does not matter: the numbers say what would be taken. Fails as a start would.
Result<contract::MemoryNeed> plan_memory(const WorkerOptions& options,
                                         std::span<const std::string> devices);

}  // namespace llorch::worker
