// llorch audit: what was done to this home's fleet, and whether the record of it is whole.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "audit/audit_files.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/output.h"
#include "job_store/sqlite_store.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch audit
  llorch audit list --limit 200 --json | jq -r 'select(.action == "key.add") | .object'
  llorch audit verify

Keys made and revoked, hosts up and down, workers started and stopped by command, jobs
cancelled by others, requests refused for their key, starts and stops, restores. It is read
where the orchestrator keeps its files, also while that does not run. Never in it: prompts, answers, keys.)";

constexpr const char* kVerifyFooter = R"(Examples:
  llorch audit verify || mail -s 'audit log' root

Each line holds the hash of the one before it, and the store knows the last. Says the
first line that does not fit, and fails then (1). Somebody who can write the log and the
store can write both anew: keep `audit_head` of `llorch status --json` elsewhere.)";

constexpr std::size_t kLimit = 50;

struct ListArguments {
  std::size_t limit = kLimit;
};

json::Object object_of(const audit::Line& line) {
  json::Object object{{"seq", line.seq},           {"ts", line.time},
                      {"actor", line.act.actor},   {"action", line.act.action},
                      {"object", line.act.object}, {"result", line.act.result}};
  if (!line.act.detail.empty()) object["detail"] = line.act.detail;
  object["hash"] = line.hash;
  return object;
}

int list(const FleetContext& context, const ListArguments& arguments) {
  std::deque<audit::Line> lines;
  std::size_t num_bad = 0;
  const Status read = audit::for_each_line(context.home.data, [&](const audit::RawLine& raw) {
    Result<audit::Line> line = audit::read_line(raw.text);
    if (!line.ok()) {
      ++num_bad;
      return true;
    }
    lines.push_back(line.take());
    if (lines.size() > arguments.limit) lines.pop_front();
    return true;
  });
  if (!read.ok()) return fail(read.error());
  if (num_bad > 0)
    write_err(
        fmt::format("{} lines cannot be read; `llorch audit verify` names the first\n", num_bad));
  if (context.json_output) {
    std::string text;
    for (const audit::Line& line : lines) text += json::serialize(object_of(line)) + "\n";
    return print(text);
  }
  using Align = base::TextTable::Align;
  base::TextTable table(
      {Align::Right, Align::Left, Align::Left, Align::Left, Align::Left, Align::Left});
  table.add_row({"LINE", "TIME", "ACTOR", "ACTION", "OBJECT", "RESULT"});
  for (const audit::Line& line : lines) {
    std::string result = line.act.result;
    if (!line.act.detail.empty()) result += ", " + line.act.detail;
    table.add_row({std::to_string(line.seq), line.time, base::printable(line.act.actor),
                   base::printable(line.act.action), base::printable(line.act.object),
                   base::printable(result)});
  }
  return print(lines.empty() ? "nothing is written down yet\n"
                             : table.render(1, context.color, fold_width()));
}

int verify(const FleetContext& context) {
  // The store's knowledge first: what is written meanwhile lies behind it.
  const Result<std::optional<std::string>> known = job_store::read_entry(
      context.home.data / "llorch.db", fleet::Bucket::Audit, audit::kAnchorKey);
  if (!known.ok()) return fail(known.error());
  const std::optional<audit::Anchor> anchor =
      *known ? audit::anchor_from_text(**known) : std::nullopt;
  const Result<audit::Verdict> verdict = audit::verify(context.home.data, anchor);
  if (!verdict.ok()) return fail(verdict.error());
  const bool is_whole = verdict->problem.empty();
  if (context.json_output) {
    const int code = print_json(json::Object{{"whole", is_whole},
                                             {"lines", verdict->num_lines},
                                             {"files", verdict->num_files},
                                             {"last_line", verdict->head.seq},
                                             {"head", verdict->head.hash},
                                             {"known_to_store", anchor.has_value()},
                                             {"problem", verdict->problem}});
    return code != 0 || is_whole ? code : 1;
  }
  if (!is_whole) return fail({ErrorCode::Corrupt, "the audit log: " + verdict->problem});
  return print(fmt::format("whole: {} {} in {} {}; line {} has the hash {}\n{}", verdict->num_lines,
                           verdict->num_lines == 1 ? "line" : "lines", verdict->num_files,
                           verdict->num_files == 1 ? "file" : "files", verdict->head.seq,
                           verdict->head.hash,
                           anchor ? "" : "the store knows no end of it: a cut would not show\n"));
}

}  // namespace

void add_audit_commands(CLI::App& app, FleetContext& context) {
  auto arguments = std::make_shared<ListArguments>();
  const auto run_list = [&context, arguments] { return list(context, *arguments); };
  const auto add_limit = [arguments](CLI::App* command) {
    command->add_option("--limit", arguments->limit, "the newest N lines (50)")
        ->type_name("N")
        ->check(CLI::Range(1, 1'000'000).description(""));
  };
  CLI::App* audit =
      app.add_subcommand("audit", "who did what to the fleet, and whether that record is whole");
  audit->set_help_flag("-h,--help", "print this help");
  audit->require_subcommand(0, 1);
  audit->footer(kFooter);
  audit->add_flag("--json", context.json_output, "print JSON for programs");
  add_limit(audit);
  audit->callback([&context, run_list, audit] {
    if (audit->get_subcommands().empty()) context.chosen = run_list;
  });
  CLI::App* list_command = audit->add_subcommand("list", "the newest lines");
  list_command->set_help_flag("-h,--help", "print this help");
  list_command->add_flag("--json", context.json_output, "print JSON for programs");
  add_limit(list_command);
  list_command->footer(kFooter);
  list_command->callback([&context, run_list] { context.chosen = run_list; });
  CLI::App* verify_command = audit->add_subcommand("verify", "look for changes in it");
  verify_command->set_help_flag("-h,--help", "print this help");
  verify_command->add_flag("--json", context.json_output, "print JSON for programs");
  verify_command->footer(kVerifyFooter);
  verify_command->callback([&context] { context.chosen = [&context] { return verify(context); }; });
}

}  // namespace llorch::cli
