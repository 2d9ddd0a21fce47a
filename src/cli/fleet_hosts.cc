// llorch pool and plan on other hosts: the whole of llorch-pool there, with its own output, exit
// code, signals and terminal; or on several, side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/host_door.h"
#include "cli/host_lines.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

using base::Color;
using base::TextTable;
using Align = TextTable::Align;

constexpr const char* kPoolFooter = R"(Examples:
  llorch pool status --host anna
  llorch pool models download tinyllama --host anna,bert
  llorch pool worker list --host all
  llorch pool models list                      this host's own

Everything but --host is a command of llorch-pool, as it stands (`llorch pool --help
--host anna` too). On one host its output, exit code, signals and terminal are its own.
On several, each line comes as it is said, with its host in front, and a table at the
end says how each ended; with --json there is one object for all. On a host that joined by itself, run it there.)";

constexpr const char* kPlanFooter = R"(Examples:
  llorch plan tinyllama
  llorch plan llama3.2-1b --host anna --json

Would it fit, and where? Each host's own worker program says what it would take;
nothing is loaded. Exit code: 0 when it fits somewhere, 1 when it fits nowhere.)";

// The words without --host, and what it said. Behind "--" everything is the command's own.
struct PoolWords {
  std::vector<std::string> words;
  std::optional<std::string> host;
};
Result<PoolWords> take_host(const std::vector<std::string>& given) {
  constexpr std::string_view kFlag = "--host";
  PoolWords taken;
  bool is_over = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string& word = given[i];
    is_over = is_over || word == "--";
    const bool is_flag = !is_over && word == kFlag;
    const bool has_value = !is_over && word.starts_with("--host=");
    if (!is_flag && !has_value) {
      taken.words.push_back(word);
      continue;
    }
    if (taken.host || (is_flag && i + 1 == given.size())) {
      return Error{ErrorCode::InvalidArgument,
                   "--host is given once, with a name, several with commas, or all"};
    }
    taken.host = has_value ? word.substr(kFlag.size() + 1) : given[++i];
  }
  return taken;
}

int become_local(std::vector<std::string> words) {
  words.insert(words.begin(), "llorch-pool");
  return fail(base::become_program(base::own_folder() / "llorch-pool", std::move(words), {}));
}

// Becomes ssh, so that everything is the command's own. The connection is a child of this process
// and ends with it.
int become_remote(const HostDoor& door, const std::string& host, std::vector<std::string> words) {
  Result<std::unique_ptr<remote::HostSession>> session =
      open_session(door, host, remote::FirstContact::Refuse);
  if (!session.ok()) return fail(session.error());
  words.insert(words.begin(), "llorch-pool");
  const bool has_terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  Result<remote::SshWords> call =
      remote::exec_words((*session)->host(), {.words = std::move(words), .environment = {}},
                         has_terminal ? remote::Terminal::Yes : remote::Terminal::No);
  if (!call.ok()) return fail(call.error());
  call->insert(call->begin(), "ssh");
  return fail(base::become_program(door.ssh, std::move(*call), {}));
}

int worst_of(const std::vector<HostAnswer>& answers) {
  int worst = 0;
  for (const HostAnswer& answer : answers)
    worst = std::max(worst, answer.exit_code == 0 ? 0 : std::max(answer.exit_code, kFailure));
  return worst;
}

int show_json(const std::vector<HostAnswer>& answers) {
  json::Array list;
  for (const HostAnswer& answer : answers) {
    const Result<json::Value> value = json::parse(answer.output);
    list.push_back(json::Object{{"host", answer.host},
                                {"exit_code", answer.exit_code},
                                {"answer", value.ok() ? *value : json::Value(answer.output)}});
  }
  const int printed = print_json(json::Object{{"hosts", std::move(list)}});
  return printed != 0 ? printed : worst_of(answers);
}

// What they say as they say it, and a table of how each ended.
int ask_and_show(const FleetContext& context, const HostDoor& door,
                 const std::vector<HostWay>& ways, const std::vector<std::string>& words) {
  std::vector<std::string> hosts;
  for (const HostWay& way : ways) hosts.push_back(way.host);
  int printed = 0;
  HostLines lines(hosts, context.color, [&printed](std::string_view text) {
    if (printed == 0) printed = print(text);
  });
  const std::vector<HostAnswer> answers =
      ask_hosts(door, ways, words, JoinedPools::Refuse,
                [&lines](std::size_t host, std::string_view bytes) { lines.take(host, bytes); });
  for (std::size_t i = 0; i < ways.size(); ++i) lines.finish(i);
  if (printed != 0) return printed;
  TextTable table({Align::Left, Align::Left});
  table.add_row({"HOST", "RESULT"}, Color::Bold);
  for (const HostAnswer& answer : answers) {
    table.add_row(
        {answer.host, answer.exit_code == 0 ? "ok" : fmt::format("exit code {}", answer.exit_code)},
        answer.exit_code == 0 ? Color::Green : Color::Red);
  }
  printed = print("\n" + table.render(0, context.color));
  return printed != 0 ? printed : worst_of(answers);
}

int run_pool_command(const FleetContext& context, const std::vector<std::string>& given) {
  Result<PoolWords> taken = take_host(given);
  if (!taken.ok()) {
    complain(taken.error().message);
    return kUsage;
  }
  if (!taken->host || *taken->host == kLocalHost) return become_local(std::move(taken->words));
  const Result<std::vector<std::string>> hosts = find_hosts(context, *taken->host);
  if (!hosts.ok()) return fail(hosts.error());
  const Result<HostDoor> door = open_door(context);
  if (!door.ok()) return fail(door.error());
  const std::vector<HostWay> ways = find_ways(context, *hosts);
  if (ways.size() == 1 && *taken->host != "all") {
    if (ways.front().came_by_itself) return fail(no_way_to(ways.front()));
    return become_remote(*door, hosts->front(), std::move(taken->words));
  }
  const bool wants_json =
      std::find(taken->words.begin(), taken->words.end(), "--json") != taken->words.end();
  if (wants_json) return show_json(ask_hosts(*door, ways, taken->words, JoinedPools::Refuse));
  return ask_and_show(context, *door, ways, taken->words);
}

std::int64_t number_in(const json::Value& value, std::string_view field) {
  const json::Object* object = value.if_object();
  const json::Value* found = object != nullptr ? object->if_contains(field) : nullptr;
  return found != nullptr && found->is_int64() ? found->get_int64() : 0;
}

// What was said in several lines, for a cell of a table.
std::string in_one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view part = text.substr(0, end);
    if (part.ends_with('\r')) part.remove_suffix(1);
    if (!part.empty()) line += (line.empty() ? "" : " ") + base::printable(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return line;
}

// The rows of one host's plan, a row for each device; whether it fits on one of them.
bool add_plan_rows(const HostAnswer& answer, TextTable& table) {
  const Result<json::Value> value = json::parse(answer.output);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  const json::Value* plans = object != nullptr ? object->if_contains("plans") : nullptr;
  if (plans == nullptr || !plans->is_array()) {
    table.add_row({answer.host, "-", "-", "-", "-", in_one_line(answer.output)}, Color::Red);
    return false;
  }
  bool fits_somewhere = false;
  for (const json::Value& plan : plans->get_array()) {
    const json::Object* fields = plan.if_object();
    if (fields == nullptr) continue;
    const json::Value* fits = fields->if_contains("fits");
    const bool does_fit = fits != nullptr && fits->is_bool() && fits->get_bool();
    const json::Value* need = fields->if_contains("need");
    const json::Value none;
    const json::Value& parts = need != nullptr ? *need : none;
    const std::int64_t bytes = number_in(parts, "weights_bytes") + number_in(parts, "kv_bytes") +
                               number_in(parts, "scratch_bytes") +
                               number_in(parts, "runtime_bytes");
    const json::Value* device = fields->if_contains("device");
    table.add_row({answer.host,
                   device != nullptr && device->is_string()
                       ? base::printable(json::view(device->get_string()))
                       : "-",
                   base::human_bytes(bytes), base::human_bytes(number_in(plan, "free_bytes")),
                   fmt::format("{} x {}", number_in(parts, "slots"), number_in(parts, "context")),
                   does_fit ? "fits" : "does not fit"},
                  does_fit ? Color::Green : Color::Yellow);
    fits_somewhere = fits_somewhere || does_fit;
  }
  return fits_somewhere;
}

int plan(const FleetContext& context, const std::string& model, const std::string& where) {
  const Result<std::vector<std::string>> hosts = find_hosts(context, where);
  if (!hosts.ok()) return fail(hosts.error());
  const Result<HostDoor> door = open_door(context);
  if (!door.ok()) return fail(door.error());
  const std::vector<HostAnswer> answers = ask_hosts(
      *door, find_ways(context, *hosts), {"plan", "--json", "--", model}, JoinedPools::AskFromHere);
  TextTable table(
      {Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Left});
  table.add_row({"HOST", "DEVICE", "NEEDS", "FREE", "SLOTS x CONTEXT", ""}, Color::Bold);
  bool fits_somewhere = false;
  for (const HostAnswer& answer : answers)
    fits_somewhere = add_plan_rows(answer, table) || fits_somewhere;
  if (context.json_output) {
    show_json(answers);
  } else if (const int code = print(table.render(0, context.color, fold_width())); code != 0) {
    return code;
  }
  return fits_somewhere ? 0 : kFailure;
}

}  // namespace

void add_hosts_commands(CLI::App& app, FleetContext& context) {
  CLI::App* pool = app.add_subcommand("pool", "every command of llorch-pool, on any host");
  pool->set_help_flag();
  pool->prefix_command();
  pool->footer(kPoolFooter);
  pool->callback([&context, pool] {
    context.chosen = [&context, pool] {
      std::vector<std::string> words = pool->remaining();
      const bool wants_help =
          words.empty() || (words.size() == 1 && (words[0] == "--help" || words[0] == "-h"));
      return wants_help ? print(pool->help()) : run_pool_command(context, words);
    };
  });
  struct PlanArguments {
    std::string model;
    std::string host = "all";
  };
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* plan_command = add_fleet_command(
      app, context, "plan", "would a model fit, and on which host", kPlanFooter,
      [&context, arguments] { return plan(context, arguments->model, arguments->host); });
  plan_command->add_option("MODEL", arguments->model, "a name of the hosts' catalogs")->required();
  plan_command->add_option("--host", arguments->host, "only there; several with commas (all)")
      ->type_name("HOST");
}

}  // namespace llorch::cli
