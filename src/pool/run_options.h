// The command line of the pool manager, with the environment and the user's file behind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "api/daemon_options.h"
#include "base/home.h"

namespace llorch::pool {

struct PoolOptions : api::DaemonOptions {
  int idle_exit_sec = 0;            // end after this long without any use; 0: never
  bool started_by_command = false;  // --idle-exit is then 900 unless somebody says otherwise
  std::string api_token_file;
  std::uint16_t workers_first_port = 8000;
  std::filesystem::path worker_cpu;   // llorch-cpud
  std::filesystem::path worker_cuda;  // worker-orcd
  std::filesystem::path keeper;       // the program that has `keep`: llorch-pool
  bool confine_workers = true;
  int max_downloads = 2;
  std::vector<std::string> labels;  // what the fleet may know of this host: "zone=attic"
};

using ParsedPoolCommand = api::ParsedDaemon<PoolOptions>;

// A flag wins over LLORCH_POOL_<FLAG> in the environment, that over the key of the same name in
// section [pool] of the configuration file, that over the default. `programs`: the folder where
// worker programs and keeper are looked for by default. `is_terminal`: whether stderr is one;
// without --log-format that decides between pretty and JSON.
ParsedPoolCommand parse_pool_command(std::string_view program,
                                     const std::vector<std::string>& arguments,
                                     const base::Environment& environment,
                                     const std::filesystem::path& programs, bool is_terminal);

}  // namespace llorch::pool
