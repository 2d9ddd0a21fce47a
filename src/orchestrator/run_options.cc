#include "orchestrator/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "base/settings.h"
#include "contract/default_ports.h"

namespace llorch::orchestrator {
namespace {

constexpr std::array<std::string_view, 16> kSettable = {
    "host",         "port",       "tls-cert",   "tls-key",   "tls-name", "plain-http",
    "allow-origin", "log-file",   "log-format", "store",     "pool",     "pool-token-file",
    "start-pool",   "local-pool", "max-jobs",   "io-threads"};

constexpr const char* kFooter = R"(Examples:
  orchestratord                          on 127.0.0.1:8080, for this machine
  orchestratord --port 0                 a free port; llorch finds it by itself
  orchestratord --host 0.0.0.0           for others too: TLS, and a key (`llorch keys add`)

Every flag can also be set as LLORCH_ORCHESTRATOR_<FLAG> or in section
[orchestrator] of config.toml (max-jobs = 2000).

SIGTERM, SIGINT and POST /v2/shutdown end it; accepted jobs are stored and go on
at the next start. Pools and workers stay.)";

void describe(CLI::App& app, OrchestratorOptions& options, std::string& log_format) {
  api::describe_daemon_flags(app, {.name = "orchestrator", .secret = "key", .any_origin = ""},
                             options, log_format);
  app.add_option("--store", options.store, "the file that keeps jobs, hosts and keys (llorch.db)")
      ->type_name("FILE");
  app.add_option("--pool", options.pool, "the program of this machine's pool (pool-managerd)")
      ->type_name("PATH");
  app.add_option("--pool-token-file", options.pool_token_file,
                 "file with the token that this machine's pool wants")
      ->type_name("FILE");
  app.add_option("--start-pool", options.start_pool,
                 "whether to start this machine's pool where none runs; false: a service does")
      ->type_name("true|false")
      ->default_str(options.start_pool ? "true" : "false");
  app.add_option("--local-pool", options.local_pool, "whether this machine is one of the hosts")
      ->type_name("true|false")
      ->default_str(options.local_pool ? "true" : "false");
  app.add_option("--max-jobs", options.max_jobs,
                 "jobs that may wait and run; more are told to wait")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->capture_default_str();
  app.add_option("--io-threads", options.io_threads, "threads for connections, and for relays")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""))
      ->capture_default_str();
  app.footer(kFooter);
}

}  // namespace

ParsedOrchestratorCommand parse_orchestrator_command(std::string_view program,
                                                     const std::vector<std::string>& arguments,
                                                     const base::Environment& environment,
                                                     const std::filesystem::path& programs,
                                                     bool is_terminal) {
  CLI::App app("Takes jobs and decides which worker of which host runs them.",
               std::string(program));
  OrchestratorOptions options;
  options.port = contract::kOrchestratorPort;
  options.pool = programs / "pool-managerd";
  std::string log_format;
  describe(app, options, log_format);
  const base::SettingNames settings = {"orchestrator", "LLORCH_ORCHESTRATOR_", kSettable};
  if (auto end = api::parse_daemon_command(app, program, arguments, settings, environment))
    return {*std::move(end)};
  options.log_format = api::choose_log_format(log_format, is_terminal);
  return {{}, std::move(options)};
}

}  // namespace llorch::orchestrator
