#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/terminal.h"
#include "catalog/model_catalog.h"
#include "catalog/outdated.h"
#include "catalog/verify.h"
#include "cli/download_view.h"
#include "cli/find_pool.h"
#include "cli/model_store.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "cli/pool_tables.h"
#include "fetch/neighbour.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kRevisionShown = 12;  // characters of a commit's name that tell it apart

constexpr const char* kVerifyFooter = R"(Examples:
  llorch-pool models verify
  llorch-pool models verify tinyllama --repair
  llorch-pool models verify tinyllama --repair --from attic --from 10.0.0.7:9200

Reads every byte of the models' files and compares it with the hashes that were
kept when they came here. A model that was registered in place is hashed the first
time and compared from then on.

--repair mends only what is damaged, in pieces of 8 MiB: from the hosts of --from in
their order, then from where the model came from. LLORCH_TOKEN is sent to the hosts.
Files outside the pool's own folder are never written.

Exit code: 0 when all is whole, or is now; 1 when something is not; 130 after Ctrl-C.)";

constexpr const char* kOutdatedFooter = R"(Examples:
  llorch-pool models outdated
  llorch-pool models outdated --json

Asks the source of each downloaded model for its newest revision. A source that does
not answer is shown and does not keep the others. `llorch-pool models download ID`
fetches what is newer.)";

struct VerifyArguments {
  std::string id;
  bool repair = false;
  std::vector<std::string> from;
};

std::string result_text(const catalog::VerifyReport& report) {
  const auto repaired =
      std::count_if(report.damages.begin(), report.damages.end(),
                    [](const catalog::Damage& damage) { return damage.repaired; });
  const auto damaged = static_cast<std::ptrdiff_t>(report.damages.size()) - repaired;
  if (damaged > 0 && repaired > 0) return fmt::format("{} damaged, {} repaired", damaged, repaired);
  if (damaged > 0) return fmt::format("{} damaged", damaged);
  if (repaired > 0) return fmt::format("{} repaired", repaired);
  return report.hashed_first_time ? "hashed for the first time" : "whole";
}

std::string damage_text(const catalog::Damage& damage) {
  std::string text = "  " + base::printable(damage.file);
  switch (damage.kind) {
    case catalog::Damage::Kind::Missing:
      text += ": missing";
      break;
    case catalog::Damage::Kind::WrongSize:
      text += ": another size";
      break;
    case catalog::Damage::Kind::Rotted:
      text += fmt::format(": {} at {} rotted", base::human_bytes(damage.bytes), damage.offset);
      break;
  }
  if (damage.repaired) text += ", repaired from " + base::printable(damage.from);
  if (!damage.reason.empty()) text += " (" + base::printable(damage.reason) + ")";
  return text + "\n";
}

// One model's outcome: a report, or why there is none.
struct Outcome {
  std::string id;
  Result<catalog::VerifyReport> report;
};

std::string outcomes_text(const std::vector<Outcome>& outcomes, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Right, Align::Right, Align::Left});
  table.add_row({"MODEL", "FILES", "SIZE", "RESULT"}, base::Color::Bold);
  std::string damages;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.report.ok()) {
      table.add_row({outcome.id, "", "", "failed"}, base::Color::Red);
      continue;
    }
    const catalog::VerifyReport& report = *outcome.report;
    table.add_row({report.model, std::to_string(report.files_checked),
                   base::human_bytes(report.bytes_checked), result_text(report)},
                  report.is_whole() ? base::Color::None : base::Color::Red);
    if (!report.damages.empty()) damages += report.model + ":\n";
    for (const catalog::Damage& damage : report.damages) damages += damage_text(damage);
  }
  return table.render(0, color) + damages;
}

json::Object outcome_json(const Outcome& outcome) {
  if (outcome.report.ok()) return to_json(*outcome.report);
  return {{"model", outcome.id}, {"whole", false}, {"error", outcome.report.error().message}};
}

int report_outcomes(const PoolContext& context, const std::vector<Outcome>& outcomes) {
  bool all_whole = true;
  bool any_damage = false;
  json::Array list;
  for (const Outcome& outcome : outcomes) {
    const bool is_whole = outcome.report.ok() && outcome.report->is_whole();
    all_whole = all_whole && is_whole;
    any_damage = any_damage || (outcome.report.ok() && !is_whole);
    list.push_back(outcome_json(outcome));
  }
  std::string text = "No model is downloaded: `llorch-pool models catalog` shows what can be.\n";
  if (context.json_output)
    text = json::serialize(json::Object{{"models", std::move(list)}}) + "\n";
  else if (!outcomes.empty())
    text = outcomes_text(outcomes, context.color);
  const bool is_written = write_out(text);
  for (const Outcome& outcome : outcomes)
    if (!outcome.report.ok()) complain(outcome.report.error().in(outcome.id).message);
  if (any_damage)
    complain(
        "something is damaged: `llorch-pool models verify ID --repair` mends it, with --from "
        "HOST from a neighbour");
  return all_whole && is_written ? 0 : kFailure;
}

Result<std::vector<std::string>> ids_to_verify(ModelStore& store, const std::string& id) {
  if (!id.empty()) return std::vector<std::string>{id};
  const Result<ModelListing> listing = store.list();
  if (!listing.ok()) return listing.error();
  std::vector<std::string> ids;
  for (const ListedModel& model : listing->models)
    if (catalog::has_files(model.entry)) ids.push_back(model.entry.id);
  return ids;
}

catalog::Damage read_damage(const json::Object& object) {
  json::FieldReader reader(object);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  catalog::Damage damage;
  const std::string kind = reader.required_string("kind");
  damage.kind = kind == "missing"  ? catalog::Damage::Kind::Missing
                : kind == "rotted" ? catalog::Damage::Kind::Rotted
                                   : catalog::Damage::Kind::WrongSize;
  damage.file = reader.optional_string("file").value_or("");
  damage.offset = reader.optional_integer("offset", 0, kMax).value_or(0);
  damage.bytes = reader.optional_integer("bytes", 0, kMax).value_or(0);
  damage.repaired = reader.optional_bool("repaired").value_or(false);
  damage.from = reader.optional_string("from").value_or("");
  damage.reason = reader.optional_string("reason").value_or("");
  return damage;
}

// A report as the manager tells it.
catalog::VerifyReport read_report(const json::Object& object) {
  json::FieldReader reader(object);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  catalog::VerifyReport report;
  report.model = reader.required_string("model");
  report.files_checked = reader.optional_integer("files_checked", 0, kMax).value_or(0);
  report.bytes_checked = reader.optional_integer("bytes_checked", 0, kMax).value_or(0);
  report.hashed_first_time = reader.optional_bool("hashed_first_time").value_or(false);
  if (const json::Array* damages = reader.optional_array("damages")) {
    for (const json::Value& damage : *damages)
      if (damage.is_object()) report.damages.push_back(read_damage(damage.get_object()));
  }
  return report;
}

// The manager reads the files, and mends them; its events are told as they come.
Result<catalog::VerifyReport> verify_with_manager(PoolClient& client,
                                                  const catalog::VerifyRequest& request,
                                                  const contract::OnDownloadEvent& on_event,
                                                  const std::stop_token& stop) {
  json::Array neighbours;
  for (const fetch::Neighbour& neighbour : request.neighbours)
    neighbours.push_back(json::Object{{"url", neighbour.url}, {"token", neighbour.token}});
  json::Object body{{"repair", request.repair}};
  if (!neighbours.empty()) body["neighbours"] = std::move(neighbours);
  const Result<json::Value> accepted = client.post(model_path(request.id, "/verify"), body);
  if (!accepted.ok()) return accepted.error();
  const json::Object* object = accepted->if_object();
  const std::string id = object != nullptr ? text_in(*object, "download_id") : std::string();
  const Result<json::Object> report = pool_client::follow_download(client, id, on_event, stop);
  if (!report.ok()) return report.error();
  return read_report(*report);
}

// The whole of it; nothing when it was interrupted.
std::optional<std::vector<Outcome>> verify_all(const PoolContext& context, ModelStore& store,
                                               const std::vector<std::string>& ids,
                                               catalog::VerifyRequest request,
                                               const std::stop_token& stop) {
  catalog::Downloader downloader;
  downloader.home = context.home;
  downloader.source = fetch::source_options(context.environment);
  downloader.transfer.ca_file = downloader.source.ca_file;
  std::vector<Outcome> outcomes;
  for (const std::string& id : ids) {
    DownloadView view(::isatty(STDERR_FILENO) == 1);
    const contract::OnDownloadEvent on_event = [&](const contract::DownloadEvent& event) {
      if (context.json_output)
        write_out(json::serialize(to_json(event)) + "\n");
      else
        view.show(event);
    };
    request.id = id;
    outcomes.push_back({id, store.client() != nullptr
                                ? verify_with_manager(*store.client(), request, on_event, stop)
                                : catalog::verify_model(downloader, request, on_event, stop)});
    if (stop.stop_requested()) return std::nullopt;
  }
  return outcomes;
}

int run_verify(const PoolContext& context, const VerifyArguments& arguments) {
  catalog::VerifyRequest request;
  request.repair = arguments.repair;
  for (const std::string& host : arguments.from) {
    Result<fetch::Neighbour> neighbour = fetch::parse_neighbour(host, context.token);
    if (!neighbour.ok()) {
      complain(neighbour.error().message);
      return kUsage;
    }
    request.neighbours.push_back(neighbour.take());
  }
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  Result<ModelStore> store = ModelStore::open(context);
  const Result<std::vector<std::string>> ids =
      store.ok() ? ids_to_verify(*store, arguments.id)
                 : Result<std::vector<std::string>>(store.error());
  if (!ids.ok()) return fail(ids.error());
  const auto outcomes = verify_all(context, *store, *ids, request, stop.get_token());
  return outcomes ? report_outcomes(context, *outcomes) : kInterrupted;
}

// A check's state as its JSON has it, for people.
std::string state_text(const std::string& state, const std::string& note) {
  if (state == "current") return "up to date";
  if (state == "untracked") return "not tracked: " + note;
  return state == "failed" ? "unknown: " + note : state;
}

base::Color state_color(std::string_view state) {
  if (state == "outdated") return base::Color::Yellow;
  if (state == "failed") return base::Color::Red;
  return state == "untracked" ? base::Color::Dim : base::Color::None;
}

std::string outdated_table(const json::Array& checks, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Left, Align::Left});
  table.add_row({"MODEL", "HERE", "NEWEST", "STATE"}, base::Color::Bold);
  for (const json::Value& value : checks) {
    const json::Object* check = value.if_object();
    if (check == nullptr) continue;
    const std::string state = text_in(*check, "state");
    table.add_row({text_in(*check, "id"), text_in(*check, "revision").substr(0, kRevisionShown),
                   text_in(*check, "newest").substr(0, kRevisionShown),
                   state_text(state, text_in(*check, "note"))},
                  state_color(state));
  }
  return table.render(0, color);
}

// What the sources say, as JSON: through the manager, or asked from here.
Result<json::Array> find_outdated(const PoolContext& context, ModelStore& store,
                                  std::stop_token stop) {
  if (PoolClient* client = store.client()) {
    Result<json::Value> answer = client->get("/v2/outdated");
    if (!answer.ok()) return answer.error();
    json::Value* list = answer->is_object() ? answer->get_object().if_contains("models") : nullptr;
    if (list == nullptr || !list->is_array())
      return Error{ErrorCode::Internal, "the pool manager's answer has no models"};
    return std::move(list->get_array());
  }
  const Result<catalog::CatalogContent> content =
      catalog::ModelCatalog(context.home.catalog_file()).read();
  if (!content.ok()) return content.error();
  json::Array list;
  for (const catalog::RevisionCheck& check : catalog::check_revisions(
           content->models, fetch::source_options(context.environment), std::move(stop)))
    list.push_back(contract::write_fields(check));
  return list;
}

int run_outdated(const PoolContext& context) {
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  Result<ModelStore> store = ModelStore::open(context);
  Result<json::Array> checks = store.ok() ? find_outdated(context, *store, stop.get_token())
                                          : Result<json::Array>(store.error());
  if (stop.stop_requested()) return kInterrupted;
  if (!checks.ok()) return fail(checks.error());
  std::string text = "No model is downloaded: `llorch-pool models catalog` shows what can be.\n";
  if (context.json_output)
    text = json::serialize(json::Object{{"models", checks.take()}}) + "\n";
  else if (!checks->empty())
    text = outdated_table(*checks, context.color);
  return print(text);
}

}  // namespace

void add_verify_commands(CLI::App& parent, PoolContext& context) {
  const auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* verify =
      parent.add_subcommand("verify", "read the models' files and compare them with their hashes");
  verify->add_option("ID", arguments->id, "one model; without it all that are downloaded");
  verify->add_flag("--repair", arguments->repair, "mend what is damaged");
  verify->add_option("--from", arguments->from, "a host whose pool may have the bytes; repeatable")
      ->type_name("HOST")
      ->allow_extra_args(false);
  verify->footer(kVerifyFooter);
  run_when_named(*verify, context,
                 [&context, arguments] { return run_verify(context, *arguments); });

  CLI::App* outdated =
      parent.add_subcommand("outdated", "which models have a newer revision at their source");
  outdated->footer(kOutdatedFooter);
  run_when_named(*outdated, context, [&context] { return run_outdated(context); });
}

}  // namespace llorch::cli
