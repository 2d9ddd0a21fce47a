// llorch-pool serve, stop, and keep and look, which only our own programs call.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/interrupt.h"
#include "base/process_table.h"
#include "base/terminal.h"
#include "catalog/look.h"
#include "cli/find_pool.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "pool/pool_manager.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kLook{50};
// Draining, terminating and killing have their own limits; this is beyond their sum.
constexpr std::chrono::seconds kStopPatience{180};

constexpr const char* kStopFooter = R"(Examples:
  llorch-pool stop

Every worker finishes what it is at and is stopped, then the manager ends. Waits for
that. Nothing to do is no failure.)";

// Whether the manager has gone: nobody answers, and its process has ended where it is ours to see.
bool has_ended(PoolClient& client, const std::optional<pool::PoolAddress>& address) {
  return !client.health().ok() && !(address && base::is_running(address->process));
}

// Workers whose manager is gone: without one nothing can be drained; one that starts adopts them.
bool has_workers_without_manager(const PoolContext& context) {
  if (!context.pool_url.empty()) return false;
  const std::vector<contract::PoolWorker> workers = pool::read_worker_records(context.home);
  return std::any_of(workers.begin(), workers.end(), [](const contract::PoolWorker& worker) {
    return worker.state != contract::PoolWorkerState::Stopped &&
           worker.state != contract::PoolWorkerState::Failed;
  });
}

int stop_manager(const PoolContext& context) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (!client.ok() && has_workers_without_manager(context))
    client = find_or_start_pool(target_of(context));
  if (!client.ok()) {
    if (client.error().code == ErrorCode::NotFound) {
      const std::string_view text =
          context.json_output ? "{\"status\":\"not running\"}\n" : "no pool manager is running\n";
      return print(text);
    }
    return fail(client.error());
  }
  std::optional<pool::PoolAddress> address = pool::read_pool_address(context.home);
  if (address && address->url != client->url()) address.reset();
  if (const Result<json::Value> asked = client->post("/v2/shutdown", {}); !asked.ok())
    return fail(asked.error());
  const base::InterruptWatch watch([] {});
  base::StatusLine line(stderr);
  const auto until = std::chrono::steady_clock::now() + kStopPatience;
  while (!has_ended(*client, address)) {
    if (watch.interrupted()) return kInterrupted;
    if (std::chrono::steady_clock::now() > until) {
      line.clear();
      complain(fmt::format("the pool manager at {} still runs after {} s; its log says why",
                           client->url(), kStopPatience.count()));
      return kFailure;
    }
    const Result<std::vector<contract::PoolWorker>> workers = client->workers();
    if (workers.ok()) line.show(fmt::format("stopping {} workers", workers->size()));
    std::this_thread::sleep_for(kLook);
  }
  line.clear();
  return print(context.json_output ? "{\"status\":\"stopped\"}\n" : "stopped\n");
}

}  // namespace

void add_serve_commands(CLI::App& app, PoolContext& context) {
  // Its flags are the manager's own: everything behind the name is passed on as it stands.
  CLI::App* serve = app.add_subcommand("serve", "run the pool manager here (pool-managerd)");
  serve->set_help_flag();
  serve->fallthrough(false);
  serve->prefix_command();
  run_when_named(*serve, context, [&context, serve] {
    return pool::run_pool("llorch-pool serve", serve->remaining(), context.environment);
  });
  CLI::App* stop = app.add_subcommand("stop", "stop every worker, then the manager");
  stop->footer(kStopFooter);
  run_when_named(*stop, context, [&context] { return stop_manager(context); });
  auto record = std::make_shared<std::string>();
  CLI::App* keep = app.add_subcommand("keep", "")->group("");
  keep->add_option("RECORD", *record)->required();
  keep->callback([&context, record] {
    context.needs_home = false;  // the manager starts it with hardly any environment
    context.chosen = [record] { return pool::run_keeper(*record); };
  });
  auto model = std::make_shared<std::string>();
  CLI::App* look = app.add_subcommand("look", "")->group("");
  look->add_option("PATH", *model)->required();
  look->callback([&context, model] {
    context.needs_home = false;
    context.chosen = [model] { return catalog::run_look(*model); };
  });
}

}  // namespace llorch::cli
