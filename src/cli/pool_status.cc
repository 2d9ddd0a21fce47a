// llorch-pool status and health: the whole host at a glance, with or without a manager.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/version.h"
#include "catalog/known_models.h"
#include "catalog/model_catalog.h"
#include "cli/downloads_table.h"
#include "cli/find_pool.h"
#include "cli/leftovers_note.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "cli/pool_tables.h"
#include "cli/screen.h"
#include "pool/devices.h"
#include "pool/pool_manager.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr std::string_view kClearScreen = "\x1b[H\x1b[2J\x1b[3J";

constexpr const char* kStatusFooter = R"(Examples:
  llorch-pool status
  llorch-pool status --watch
  llorch-pool status --json | jq .host.memory_free_bytes

Without a manager: what the devices, the catalog and the workers' records say.)";

constexpr const char* kHealthFooter = R"(Examples:
  llorch-pool health && echo fine

Exit code: 0 when the pool manager runs and can do its work, 1 with the reason.)";

struct StatusArguments {
  bool watch = false;
  double interval = 2;
};

// One look at everything.
struct Look {
  std::string manager;  // its URL; empty: none runs
  std::string pool_id;
  contract::HostInfo host;
  std::vector<contract::ModelEntry> models;
  std::vector<contract::PoolWorker> workers;
  json::Array downloads;  // as GET /v2/downloads lists them
  json::Value json;
};

Result<Look> look_without_manager(const PoolContext& context, const pool::Devices& devices) {
  Look look;
  look.host = devices.read(context.home.models());
  const Result<catalog::CatalogContent> content =
      catalog::ModelCatalog(context.home.catalog_file()).read();
  if (!content.ok()) return content.error();
  look.pool_id = content->pool_id;
  look.models.push_back(catalog::builtin_entry());
  look.models.insert(look.models.end(), content->models.begin(), content->models.end());
  look.workers = pool::read_worker_records(context.home);
  look.downloads = read_downloads_under_way(context.home);
  json::Array models;
  for (const contract::ModelEntry& model : look.models)
    models.emplace_back(contract::to_json(model));
  json::Array workers;
  for (const contract::PoolWorker& worker : look.workers)
    workers.emplace_back(contract::to_json(worker));
  look.json = json::Object{{"manager", nullptr},          {"pool_id", look.pool_id},
                           {"version", base::version()},  {"host", contract::to_json(look.host)},
                           {"models", std::move(models)}, {"workers", std::move(workers)},
                           {"downloads", look.downloads}};
  return look;
}

template <class Parse>
Status read_list(const json::Object& state, std::string_view field, Parse parse) {
  const json::Value* list = state.if_contains(field);
  if (list == nullptr || !list->is_array()) {
    return Error{ErrorCode::Internal,
                 fmt::format("the pool manager's answer has no list of {}", field)};
  }
  for (const json::Value& value : list->get_array()) {
    if (Status parsed = parse(value); !parsed.ok()) return parsed;
  }
  return ok_status();
}

Result<Look> look_at_manager(PoolClient& client) {
  Look look;
  look.manager = client.url();
  Result<json::Value> answer = client.get("/v2/state");
  if (!answer.ok()) return answer.error();
  if (!answer->is_object())
    return Error{ErrorCode::Internal, "the pool manager's answer is no object"};
  json::Object& state = answer->get_object();
  const json::Value* host = state.if_contains("host");
  Result<contract::HostInfo> parsed =
      contract::parse_host_info(host != nullptr ? *host : json::Value());
  if (!parsed.ok()) return parsed.error();
  look.host = parsed.take();
  if (const json::Value* id = state.if_contains("pool_id"); id != nullptr && id->is_string())
    look.pool_id = json::view(id->get_string());
  Status models = read_list(state, "models", [&look](const json::Value& value) -> Status {
    Result<contract::ModelEntry> entry = contract::parse_model_entry(value, "model");
    if (!entry.ok()) return entry.error();
    look.models.push_back(entry.take());
    return ok_status();
  });
  if (!models.ok()) return models.error();
  Status workers = read_list(state, "workers", [&look](const json::Value& value) -> Status {
    Result<contract::PoolWorker> worker = contract::parse_pool_worker(value);
    if (!worker.ok()) return worker.error();
    look.workers.push_back(worker.take());
    return ok_status();
  });
  if (!workers.ok()) return workers.error();
  if (const json::Value* list = state.if_contains("downloads"); list != nullptr && list->is_array())
    look.downloads = list->get_array();
  state["manager"] = look.manager;
  look.json = answer.take();
  return look;
}

Result<Look> look_now(const PoolContext& context, const pool::Devices& devices) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (client.ok()) return look_at_manager(*client);
  if (!context.pool_url.empty()) return client.error();
  return look_without_manager(context, devices);
}

std::string text_of(const Look& look, bool color) {
  std::string text = look.manager.empty()
                         ? "no manager is running (`llorch-pool serve`)\n"
                         : fmt::format("pool {} at {}\n", base::printable(look.pool_id),
                                       base::printable(look.manager));
  text += "\n" + host_text(look.host, color);
  text += "\n" + models_table(look.models, color);
  const auto now = std::chrono::system_clock::now();
  text += "\n" + workers_table(look.workers, now, color);
  if (const std::string table = downloads_table(look.downloads, false, now, color); !table.empty())
    text += "\n" + table;
  return text;
}

int show(const PoolContext& context, const pool::Devices& devices, std::string_view before) {
  const Result<Look> look = look_now(context, devices);
  if (!look.ok()) return fail(look.error());
  std::string text =
      context.json_output ? json::serialize(look->json) + "\n" : text_of(*look, context.color);
  if (!context.json_output) text += leftovers_note(context);
  return print(std::string(before) + text);
}

int status(const PoolContext& context, const StatusArguments& arguments) {
  const pool::Devices devices;
  if (!arguments.watch) return show(context, devices, "");
  const base::InterruptWatch watch([] {});
  const bool clears = ::isatty(STDOUT_FILENO) != 0 && !has_dumb_terminal(context.environment) &&
                      !context.json_output;
  const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(arguments.interval));
  while (!watch.interrupted()) {
    if (const int code = show(context, devices, clears ? kClearScreen : ""); code != 0) return code;
    const auto until = std::chrono::steady_clock::now() + pause;
    while (!watch.interrupted() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kTick);
  }
  return kInterrupted;
}

int health(const PoolContext& context) {
  Result<PoolClient> client = find_pool(target_of(context));
  Result<json::Object> report = client.ok() ? client->health() : client.error();
  if (!report.ok()) {
    if (context.json_output)
      write_out(json::serialize(json::Object{{"status", "down"},
                                             {"reasons", json::Array{report.error().message}}}) +
                "\n");
    return fail(report.error());
  }
  const json::Value* state = report->if_contains("status");
  const bool is_healthy = state != nullptr && *state == "healthy";
  if (context.json_output) {
    if (!write_out(json::serialize(*report) + "\n")) return kFailure;
  } else if (is_healthy && !write_out(fmt::format("healthy at {}\n", client->url()))) {
    return kFailure;
  }
  if (is_healthy) return 0;
  const json::Value* reasons = report->if_contains("reasons");
  if (reasons != nullptr && reasons->is_array()) {
    for (const json::Value& reason : reasons->get_array()) {
      if (reason.is_string()) complain(json::view(reason.get_string()));
    }
  }
  return kFailure;
}

}  // namespace

void add_status_commands(CLI::App& app, PoolContext& context) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* status_command = app.add_subcommand("status", "host, models and workers at a glance");
  status_command->add_flag("-w,--watch", arguments->watch, "again and again, until Ctrl-C");
  status_command->add_option("--interval", arguments->interval, "seconds between two looks (2)")
      ->type_name("S")
      ->check(CLI::Range(0.1, 3600.0).description(""));
  status_command->footer(kStatusFooter);
  run_when_named(*status_command, context,
                 [&context, arguments] { return status(context, *arguments); });
  CLI::App* health_command = app.add_subcommand("health", "whether the manager can do its work");
  health_command->footer(kHealthFooter);
  run_when_named(*health_command, context, [&context] { return health(context); });
}

}  // namespace llorch::cli
