// llorch status and hosts: what the orchestrator knows, on one screen.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/interrupt.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"
#include "cli/screen.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr std::string_view kClearScreen = "\x1b[H\x1b[2J\x1b[3J";

constexpr const char* kStatusFooter = R"(Examples:
  llorch status
  llorch status --watch
  llorch status --json | jq '.hosts[] | {name, state}'

Hosts with their devices, workers with their measured speeds, models, and the jobs
that have not ended. MEMORY is what is taken of a device's memory. This host alone,
also without an orchestrator: llorch-pool status.)";

constexpr const char* kHostsFooter = R"(Examples:
  llorch hosts
  llorch hosts --json | jq -r '.hosts[] | select(.state != "connected") | .name'

States: preflight, installing, starting, connected (takes work), degraded (its
connection fails and is tried again), gone (its workers count as lost).)";

struct StatusArguments {
  bool watch = false;
  double interval = 2;
};

int show(const FleetContext& context, const FleetClient& client, std::string_view before,
         std::stop_token stop) {
  const Result<json::Value> answer = client.calls().get("/v2/status", {.stop = stop});
  if (stop.stop_requested()) return kInterrupted;
  if (!answer.ok()) return fail(answer.error());
  if (context.json_output) return print_json(*answer);
  const auto status = FleetClient::read<contract::FleetStatus>(answer);
  if (!status.ok()) return fail(status.error());
  return print(std::string(before) +
               status_text(*status, client.url(), terminal_view(context.color)));
}

int status(const FleetContext& context, const StatusArguments& arguments) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  if (!arguments.watch) return show(context, *client, "", {});
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const bool clears = ::isatty(STDOUT_FILENO) != 0 && !has_dumb_terminal(context.environment) &&
                      !context.json_output;
  const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(arguments.interval));
  while (!watch.interrupted()) {
    const int code = show(context, *client, clears ? kClearScreen : "", stop.get_token());
    if (code != 0) return code;
    const auto until = std::chrono::steady_clock::now() + pause;
    while (!watch.interrupted() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kTick);
  }
  return kInterrupted;
}

int hosts(const FleetContext& context) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  if (context.json_output) {
    const Result<json::Value> answer = client->calls().get("/v2/hosts");
    return answer.ok() ? print_json(*answer) : fail(answer.error());
  }
  const auto list = client->get<contract::HostList>("/v2/hosts");
  if (!list.ok()) return fail(list.error());
  return print(hosts_text(list->hosts, terminal_view(context.color)));
}

}  // namespace

void add_status_commands(CLI::App& app, FleetContext& context) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command =
      add_fleet_command(app, context, "status", "the whole house on one screen", kStatusFooter,
                        [&context, arguments] { return status(context, *arguments); });
  command->add_flag("-w,--watch", arguments->watch, "again and again, until Ctrl-C");
  command->add_option("--interval", arguments->interval, "seconds between two looks (2)")
      ->type_name("S")
      ->check(CLI::Range(0.1, 3600.0).description(""));
  add_fleet_command(app, context, "hosts", "the machines of the fleet and their state",
                    kHostsFooter, [&context] { return hosts(context); });
}

}  // namespace llorch::cli
