#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/terminal.h"
#include "catalog/model_catalog.h"
#include "catalog/neighbour.h"
#include "catalog/outdated.h"
#include "catalog/verify.h"
#include "cli/download_view.h"
#include "cli/output.h"
#include "cli/pool_command.h"

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

Result<std::vector<std::string>> ids_to_verify(const PoolContext& context, const std::string& id) {
  if (!id.empty()) return std::vector<std::string>{id};
  const Result<catalog::CatalogContent> content =
      catalog::ModelCatalog(context.home.catalog_file()).read();
  if (!content.ok()) return content.error();
  std::vector<std::string> ids;
  for (const contract::ModelEntry& model : content->models)
    if (catalog::has_files(model)) ids.push_back(model.id);
  return ids;
}

int run_verify(const PoolContext& context, const VerifyArguments& arguments) {
  catalog::VerifyRequest request;
  request.repair = arguments.repair;
  for (const std::string& host : arguments.from) {
    Result<catalog::Neighbour> neighbour = catalog::parse_neighbour(host, context.token);
    if (!neighbour.ok()) {
      complain(neighbour.error().message);
      return kUsage;
    }
    request.neighbours.push_back(neighbour.take());
  }
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  const Result<std::vector<std::string>> ids = ids_to_verify(context, arguments.id);
  if (!ids.ok()) {
    complain(ids.error().message);
    return kFailure;
  }
  catalog::Downloader downloader;
  downloader.home = context.home;
  downloader.source = catalog::source_options(context.environment);
  downloader.transfer.ca_file = downloader.source.ca_file;
  std::vector<Outcome> outcomes;
  for (const std::string& id : *ids) {
    DownloadView view(::isatty(STDERR_FILENO) == 1);
    const catalog::OnDownloadEvent on_event = [&](const catalog::DownloadEvent& event) {
      if (context.json_output)
        write_out(json::serialize(to_json(event)) + "\n");
      else
        view.show(event);
    };
    request.id = id;
    outcomes.push_back(
        {id, catalog::verify_model(downloader, request, on_event, stop.get_token())});
    if (stop.stop_requested()) return kInterrupted;
  }
  return report_outcomes(context, outcomes);
}

std::string state_text(const catalog::RevisionCheck& check) {
  switch (check.state) {
    case catalog::RevisionCheck::State::Current:
      return "up to date";
    case catalog::RevisionCheck::State::Outdated:
      return "outdated";
    case catalog::RevisionCheck::State::Untracked:
      return "not tracked: " + base::printable(check.note);
    case catalog::RevisionCheck::State::Failed:
      return "unknown: " + base::printable(check.note);
  }
  return {};
}

base::Color state_color(catalog::RevisionCheck::State state) {
  switch (state) {
    case catalog::RevisionCheck::State::Outdated:
      return base::Color::Yellow;
    case catalog::RevisionCheck::State::Failed:
      return base::Color::Red;
    case catalog::RevisionCheck::State::Untracked:
      return base::Color::Dim;
    default:
      return base::Color::None;
  }
}

int run_outdated(const PoolContext& context) {
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  const Result<catalog::CatalogContent> content =
      catalog::ModelCatalog(context.home.catalog_file()).read();
  if (!content.ok()) {
    complain(content.error().message);
    return kFailure;
  }
  const std::vector<catalog::RevisionCheck> checks = catalog::check_revisions(
      content->models, catalog::source_options(context.environment), stop.get_token());
  if (stop.stop_requested()) return kInterrupted;
  if (context.json_output) {
    json::Array list;
    for (const catalog::RevisionCheck& check : checks) list.push_back(to_json(check));
    return write_out(json::serialize(json::Object{{"models", std::move(list)}}) + "\n") ? 0
                                                                                        : kFailure;
  }
  if (checks.empty())
    return write_out("No model is downloaded: `llorch-pool models catalog` shows what can be.\n")
               ? 0
               : kFailure;
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Left, Align::Left});
  table.add_row({"MODEL", "HERE", "NEWEST", "STATE"}, base::Color::Bold);
  for (const catalog::RevisionCheck& check : checks)
    table.add_row({check.id, base::printable(check.have.substr(0, kRevisionShown)),
                   base::printable(check.newest.substr(0, kRevisionShown)), state_text(check)},
                  state_color(check.state));
  return write_out(table.render(0, context.color)) ? 0 : kFailure;
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
  verify->callback([&context, arguments] {
    context.chosen = [&context, arguments] { return run_verify(context, *arguments); };
  });

  CLI::App* outdated =
      parent.add_subcommand("outdated", "which models have a newer revision at their source");
  outdated->footer(kOutdatedFooter);
  outdated->callback([&context] { context.chosen = [&context] { return run_outdated(context); }; });
}

}  // namespace llorch::cli
