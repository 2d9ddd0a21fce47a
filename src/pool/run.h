// A pool manager from its command line to its exit code: `pool-managerd` and `llorch-pool serve`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/daemon_address.h"
#include "base/home.h"

namespace llorch::pool {

// Validates the flags, listens, adopts the workers that run, says so (a line on stdout, the address
// file, systemd), serves until SIGTERM, SIGINT or POST /v2/shutdown, then stops every worker. 0 ok,
// 1 failure (one line on stderr), 2 usage, 130 a second signal: workers then stay with their
// keepers. `program` is its name in messages; call it before the program makes threads.
int run_pool(std::string_view program, const std::vector<std::string>& arguments,
             const base::Environment& environment);

// Where the manager of this home listens, as it wrote when it was ready: Home::state/pool.json.
using PoolAddress = api::DaemonAddress;
std::filesystem::path address_file(const base::Home& home);
// Where its unix socket lies: LLORCH_HOME/run, or $XDG_RUNTIME_DIR/llorch, or the state folder's
// run/.
std::filesystem::path run_folder(const base::Home& home, const base::Environment& environment);
// Nothing when there is no such file, it is damaged, or its process does not run.
std::optional<PoolAddress> read_pool_address(const base::Home& home);

}  // namespace llorch::pool
