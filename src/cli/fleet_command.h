// What the commands of the fleet share. One file for each group of them. Private to cli/.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "cli/find_pool.h"
#include "cli/fleet_client.h"

namespace llorch::cli {

// Owned by run_llorch, outlives the commands.
struct FleetContext {
  base::Environment environment;
  base::Home home;
  bool json_output = false;
  bool color = false;   // of standard output
  std::string url;      // --orchestrator, LLORCH_ORCHESTRATOR; empty: the one of this home
  std::string token;    // LLORCH_TOKEN, or this user's own key where the address needs one
  std::string ca_file;  // --ca-file, LLORCH_CA_FILE: whom alone to believe about it
  // Set by the command that was named; run after parsing. Returns the exit code.
  std::function<int()> chosen;
  bool runs_unprepared = false;  // it also runs where complete() fails, which is its business then
};

FleetTarget target_of(const FleetContext& context);
PoolTarget pool_of(const FleetContext& context);  // of this home

// What is known once everything is parsed.
Status complete(FleetContext& context);

// A command with --json, --orchestrator, --help and examples; when it is named, `run` is what is
// done after parsing. Further flags are the caller's.
CLI::App* add_fleet_command(CLI::App& parent, FleetContext& context, const std::string& name,
                            const std::string& description, const char* footer,
                            std::function<int()> run);

// Each adds its commands and, when one is named, sets context.chosen.
void add_up_commands(CLI::App& app, FleetContext& context);      // up down
void add_status_commands(CLI::App& app, FleetContext& context);  // status hosts
void add_jobs_commands(CLI::App& app, FleetContext& context);    // jobs … why
void add_keys_commands(CLI::App& app, FleetContext& context);    // keys …
void add_hosts_commands(CLI::App& app, FleetContext& context);   // pool plan
void add_backup_commands(CLI::App& app, FleetContext& context);  // backup restore
void add_audit_commands(CLI::App& app, FleetContext& context);   // audit …
void add_ca_command(CLI::App& app, FleetContext& context);       // ca
void add_bench_command(CLI::App& app, FleetContext& context);
void add_doctor_command(CLI::App& app, FleetContext& context);
void add_matrix_command(CLI::App& app, FleetContext& context);
void add_top_command(CLI::App& app, FleetContext& context);

// `llorch up HOST…` and `down HOST…`; the exit code.
int up_hosts(const FleetContext& context, const std::vector<std::string>& hosts, bool accept_new);
int down_hosts(const FleetContext& context, const std::vector<std::string>& hosts);

}  // namespace llorch::cli
