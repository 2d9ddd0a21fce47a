// llorch doctor: what this machine has and lacks, each with the line that mends it.
#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>

#include "base/terminal.h"
#include "base/version.h"
#include "cli/doctor.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch doctor
  llorch doctor --json | jq -r '.checks[] | select(.state == "fault") | .mend'
  ssh HOST .local/bin/llorch doctor

ok: as it should be. note: works, and could be better or is worth knowing. fault:
something will not work. Nothing is changed; below each line is what to do about it.

Exit code: 0; 1 when there is a fault.)";

json::Value to_json(const std::vector<Diagnosis>& diagnoses) {
  json::Array checks;
  for (const Diagnosis& diagnosis : diagnoses) {
    json::Object check{{"name", diagnosis.subject},
                       {"state", verdict_name(diagnosis.verdict)},
                       {"found", diagnosis.found}};
    if (!diagnosis.mend.empty()) check["mend"] = diagnosis.mend;
    checks.emplace_back(std::move(check));
  }
  return json::Object{{"version", base::version()},
                      {"faults", count_verdicts(diagnoses, Verdict::Fault)},
                      {"notes", count_verdicts(diagnoses, Verdict::Note)},
                      {"checks", std::move(checks)}};
}

int examine(const FleetContext& context) {
  const Result<base::Home> home = base::find_home(context.environment);
  if (!home.ok()) return fail(home.error());
  const std::vector<Diagnosis> diagnoses =
      judge_machine(look_at_machine(context.environment, *home));
  const bool is_ill = std::any_of(diagnoses.begin(), diagnoses.end(), [](const Diagnosis& found) {
    return found.verdict == Verdict::Fault;
  });
  const bool color = base::wants_color(stdout, context.environment("NO_COLOR"));
  const int printed = context.json_output ? print_json(to_json(diagnoses))
                                          : print(doctor_text(diagnoses, terminal_width(), color));
  return printed != 0 || is_ill ? kFailure : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, FleetContext& context) {
  CLI::App* command =
      app.add_subcommand("doctor", "what this machine has and lacks, and what mends it");
  command->set_help_flag("-h,--help", "print this help");
  command->add_flag("--json", context.json_output, "print JSON for programs");
  command->footer(kFooter);
  command->callback([&context] {
    context.runs_unprepared = true;  // a broken configuration is one of the findings
    context.chosen = [&context] { return examine(context); };
  });
}

}  // namespace llorch::cli
