// The pool of this machine: found by its address file, started where there is none.
#pragma once

#include <filesystem>
#include <string>

#include "base/home.h"
#include "base/result.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

struct LocalPoolOptions {
  base::Home home;
  std::filesystem::path program;  // pool-managerd; empty: somebody else starts it
  std::string token;              // may be empty
};

// Blocks until it answers, at most 20 s. Two that come at once start one. It is a process of its
// own and outlives us. Unavailable where none is to be started and none came.
Result<PoolAddress> find_or_start_local_pool(const LocalPoolOptions& options);

}  // namespace llorch::orchestrator
