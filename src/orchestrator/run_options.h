// The command line of the orchestrator, with the environment and the user's file behind it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "api/daemon_options.h"
#include "base/home.h"

namespace llorch::orchestrator {

struct OrchestratorOptions : api::DaemonOptions {
  std::filesystem::path store;  // empty: llorch.db in the home
  std::filesystem::path pool;   // pool-managerd
  bool start_pool = true;       // where none runs
  std::string pool_token_file;  // of the local pool, where it wants one
  bool local_pool = true;       // this machine is one of the hosts
  std::size_t max_jobs = 10'000;
  int io_threads = 1;  // a second one is woken by much of what the first does
};

using ParsedOrchestratorCommand = api::ParsedDaemon<OrchestratorOptions>;

// A flag wins over LLORCH_ORCHESTRATOR_<FLAG> in the environment, that over the key of the same
// name in section [orchestrator] of the configuration file, that over the default. `programs`: the
// folder where pool-managerd is looked for. `is_terminal`: whether stderr is one; without
// --log-format that decides between pretty and JSON.
ParsedOrchestratorCommand parse_orchestrator_command(std::string_view program,
                                                     const std::vector<std::string>& arguments,
                                                     const base::Environment& environment,
                                                     const std::filesystem::path& programs,
                                                     bool is_terminal);

}  // namespace llorch::orchestrator
