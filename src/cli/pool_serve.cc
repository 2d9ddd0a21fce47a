// llorch-pool serve, stop, and keep and look, which only our own programs call.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "catalog/look.h"
#include "cli/find_pool.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "pool/pool_manager.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

constexpr const char* kStartFooter = R"(Examples:
  llorch-pool start
  llorch-pool start --json | jq -r .url
  llorch-pool start --replace          after an upgrade

Starts the pool manager in the background, unless it runs, and says where it answers.
It stays until `llorch-pool stop`; its log is in the state folder.

--replace: one that runs another version of these programs is ended and started anew.
Its workers go on, and the new one adopts them; what is asked through the manager at
that moment is cut, a download goes on when it is ordered again.)";

constexpr const char* kStopFooter = R"(Examples:
  llorch-pool stop

Every worker finishes what it is at and is stopped, then the manager ends. Waits for
that. Nothing to do is no failure.)";

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
  const base::InterruptWatch watch([] {});
  base::StatusLine line(stderr);
  const Status stopped = stop_pool(*client, context.home, [&](std::size_t workers) {
    line.show(fmt::format("stopping {} workers", workers));
    return !watch.interrupted();
  });
  line.clear();
  if (watch.interrupted()) return kInterrupted;
  if (!stopped.ok()) return fail(stopped.error());
  return print(context.json_output ? "{\"status\":\"stopped\"}\n" : "stopped\n");
}

int start_manager(const PoolContext& context, bool replaces) {
  PoolTarget target = target_of(context);
  target.stays = true;
  const Result<bool> replaced = replaces ? end_other_version(target) : false;
  if (!replaced.ok()) return fail(replaced.error());
  const Result<PoolClient> client = find_or_start_pool(target);
  if (!client.ok()) return fail(client.error());
  if (!context.json_output) {
    return print(fmt::format("{}running at {}\n", *replaced ? "replaced, " : "", client->url()));
  }
  json::Object object{{"url", client->url()}, {"replaced", *replaced}};
  const std::optional<pool::PoolAddress> address = pool::read_pool_address(context.home);
  if (address && address->local_url == client->url() && !address->socket.empty())
    object["socket"] = address->socket;
  return print_json(object);
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
  CLI::App* start = app.add_subcommand("start", "run the pool manager in the background");
  start->footer(kStartFooter);
  auto replaces = std::make_shared<bool>(false);
  start->add_flag("--replace", *replaces, "end one of another version first; its workers go on");
  run_when_named(*start, context,
                 [&context, replaces] { return start_manager(context, *replaces); });
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
