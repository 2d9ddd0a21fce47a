#include "pool/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "base/settings.h"
#include "base/utf8.h"
#include "contract/backend_kind.h"
#include "contract/default_ports.h"
#include "contract/pool_state.h"

namespace llorch::pool {
namespace {

constexpr int kIdleExitSecByCommand = 900;

constexpr std::array<std::string_view, 18> kSettable = {
    "host",        "port",       "api-token-file",     "allow-origin",
    "log-file",    "log-format", "workers-first-port", "worker-cpu",
    "worker-cuda", "keeper",     "confine-workers",    "max-downloads",
    "idle-exit",   "label",      "tls-cert",           "tls-key",
    "tls-name",    "plain-http"};

constexpr const char* kFooter = R"(Examples:
  llorch-pool serve                      on 127.0.0.1:9200, for this machine
  llorch-pool serve --port 0             a free port; llorch-pool finds it by itself
  llorch-pool serve --host 0.0.0.0 --api-token-file /etc/llorch/token

Commands that need a manager start one with --any-port, which leaves after 15
minutes without use unless idle-exit says otherwise.

Every flag can also be set as LLORCH_POOL_<FLAG> (LLORCH_POOL_MAX_DOWNLOADS=4) or
in section [pool] of config.toml (max-downloads = 4).

SIGTERM, SIGINT and `llorch-pool stop` drain and stop every worker, then the
manager; a second signal ends the manager now: its workers end by themselves a
minute later unless another manager adopts them.)";

void describe(CLI::App& app, PoolOptions& options, std::string& log_format) {
  api::describe_daemon_flags(
      app, {.name = "pool", .secret = "token", .any_origin = "; * (any) needs a token"}, options,
      log_format);
  app.add_flag("--by-command", options.started_by_command, "")->group("");
  app.add_option("--idle-exit", options.idle_exit_sec,
                 "end after SEC seconds without workers, downloads and requests; 0: never")
      ->type_name("SEC")
      ->check(CLI::Range(0, 31'536'000).description(""))
      ->capture_default_str();
  app.add_option("--api-token-file", options.api_token_file,
                 "file with the bearer token that clients must send")
      ->type_name("FILE");
  app.add_option("--workers-first-port", options.workers_first_port,
                 "workers listen on this port or the next free one")
      ->type_name("N")
      ->check(CLI::Range(1, 65'535).description(""))
      ->capture_default_str();
  app.add_option("--worker-cpu", options.worker_cpu, "the CPU worker's program (llorch-cpud)")
      ->type_name("PATH");
  app.add_option("--worker-cuda", options.worker_cuda, "the CUDA worker's program (worker-orcd)")
      ->type_name("PATH");
  app.add_option("--keeper", options.keeper, "the program that keeps workers (llorch-pool)")
      ->type_name("PATH");
  app.add_option("--confine-workers", options.confine_workers,
                 "take from workers what they do not need, where the kernel can")
      ->type_name("true|false")
      ->default_str(options.confine_workers ? "true" : "false");
  app.add_option("--max-downloads", options.max_downloads, "downloads at once; others wait")
      ->type_name("N")
      ->check(CLI::Range(1, 16).description(""))
      ->capture_default_str();
  app.add_option("--label", options.labels,
                 "what the fleet may know of this host, as zone=attic; may be repeated")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("LABEL");
  app.footer(kFooter);
}

// What is wrong with the labels; empty: nothing.
std::string find_wrong_label(const std::vector<std::string>& labels) {
  if (labels.size() > contract::kLabelsMax) {
    return fmt::format("--label: at most {} labels, not {}", contract::kLabelsMax, labels.size());
  }
  for (const std::string& label : labels) {
    if (!contract::is_label(label)) {
      return fmt::format("--label {}: expected 1 to 64 letters, digits and . _ = / -",
                         base::quoted(label));
    }
  }
  return {};
}

}  // namespace

ParsedPoolCommand parse_pool_command(std::string_view program,
                                     const std::vector<std::string>& arguments,
                                     const base::Environment& environment,
                                     const std::filesystem::path& programs, bool is_terminal) {
  CLI::App app("Manages the models and workers of this host, over HTTP.", std::string(program));
  PoolOptions options;
  options.port = contract::kPoolPort;
  options.worker_cpu = programs / contract::find_backend_kind(contract::kCpu)->program;
  options.worker_cuda = programs / contract::find_backend_kind(contract::kCuda)->program;
  options.keeper = programs / "llorch-pool";
  std::string log_format;
  describe(app, options, log_format);
  const base::SettingNames settings = {"pool", "LLORCH_POOL_", kSettable};
  if (auto end = api::parse_daemon_command(app, program, arguments, settings, environment))
    return {*std::move(end)};
  if (const std::string wrong = find_wrong_label(options.labels); !wrong.empty()) {
    return {{api::kExitUsage, fmt::format("{}: {}\n", program, wrong)}};
  }
  if (options.started_by_command && app.count("--idle-exit") == 0)
    options.idle_exit_sec = kIdleExitSecByCommand;
  options.log_format = api::choose_log_format(log_format, is_terminal);
  return {{}, std::move(options)};
}

}  // namespace llorch::pool
