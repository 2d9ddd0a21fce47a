// The command line of llorch-pool, and what its commands share. One file for each group of
// commands.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/home.h"
#include "base/result.h"
#include "cli/find_pool.h"

namespace llorch::cli {

// Returns the exit code: 0 ok, 1 failure, 2 usage, 130 interrupted. Call it before the program
// makes threads.
int run_llorch_pool(int argc, const char* const* argv, const base::Environment& environment);

// What every command gets. Owned by run_llorch_pool, outlives the commands.
struct PoolContext {
  base::Environment environment;
  base::Home home;
  bool json_output = false;  // --json, taken before or after the command's name
  bool color = false;        // of standard output
  std::string pool_url;      // --pool, LLORCH_POOL; empty: the manager of this home
  std::string token;         // LLORCH_TOKEN, or the file of --token-file
  std::string ca_file;       // --ca-file, LLORCH_CA_FILE
  bool needs_home = true;    // false: the command takes no notice of anything above
  // Set by the command that was named; run after parsing. Returns the exit code.
  std::function<int()> chosen;
};

// The manager that the context means, for find_pool and find_or_start_pool.
PoolTarget target_of(const PoolContext& context);

// When `command` is named, `run` is what is done after parsing; it returns the exit code.
void run_when_named(CLI::App& command, PoolContext& context, std::function<int()> run);

// Each adds its commands below `parent` and, when one is named, sets context.chosen.
void add_models_commands(CLI::App& parent,
                         PoolContext& context);  // register unregister update list catalog rm
void add_download_commands(CLI::App& parent, PoolContext& context);   // download
void add_downloads_commands(CLI::App& parent, PoolContext& context);  // downloads [watch cancel]
void add_prune_commands(CLI::App& parent, PoolContext& context);      // prune adopt
void add_verify_commands(CLI::App& parent, PoolContext& context);     // verify outdated
void add_worker_commands(CLI::App& app,
                         PoolContext& context);  // worker spawn list stop logs restart
void add_status_commands(CLI::App& app, PoolContext& context);  // status health
void add_plan_command(CLI::App& app, PoolContext& context);     // plan
void add_serve_commands(CLI::App& app, PoolContext& context);   // serve stop keep
void add_join_commands(CLI::App& app, PoolContext& context);    // join leave
void add_rexec_command(CLI::App& app, PoolContext& context);    // rexec

}  // namespace llorch::cli
