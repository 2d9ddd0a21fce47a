// The command line of the pool manager, with the environment and the user's file behind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/tls_door.h"
#include "base/home.h"
#include "base/log.h"

namespace llorch::pool {

struct PoolOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 9200;  // 0 takes a free one
  bool any_port = false;      // another free one where that is taken
  api::TlsFlags tls;
  int idle_exit_sec = 0;            // end after this long without any use; 0: never
  bool started_by_command = false;  // --idle-exit is then 900 unless somebody says otherwise
  std::string api_token_file;
  std::vector<std::string> allow_origins;
  std::string log_file;  // instead of stderr; empty: stderr
  base::LogFormat log_format = base::LogFormat::Pretty;
  std::uint16_t workers_first_port = 8000;
  std::filesystem::path worker_cpu;   // llorch-cpud
  std::filesystem::path worker_cuda;  // worker-orcd
  std::filesystem::path keeper;       // the program that has `keep`: llorch-pool
  bool confine_workers = true;
  int max_downloads = 2;
  std::vector<std::string> labels;  // what the fleet may know of this host: "zone=attic"
};

struct ParsedPoolCommand {
  std::optional<PoolOptions> options;  // none: print `text` and exit
  int exit_code = 0;
  std::string text;  // usage, version, or what is wrong
};

// A flag wins over LLORCH_POOL_<FLAG> in the environment, that over the key of the same name in
// section [pool] of the configuration file, that over the default. `programs`: the folder where
// worker programs and keeper are looked for by default. `is_terminal`: whether stderr is one;
// without --log-format that decides between pretty and JSON.
ParsedPoolCommand parse_pool_command(std::string_view program,
                                     const std::vector<std::string>& arguments,
                                     const base::Environment& environment,
                                     const std::filesystem::path& programs, bool is_terminal);

}  // namespace llorch::pool
