#include "cli/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llorch::cli {
namespace {

constexpr double kAlwaysAllowed = 0.03;
constexpr double kNeverAllowed = 0.5;
constexpr double kUnseenNoise = 0.02;
constexpr std::size_t kNamedCells = 3;
constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;

Error broken(std::string_view what) {
  return {ErrorCode::Corrupt,
          fmt::format("this is no file of `llorch matrix --json`: {}; move it away or name another",
                      what)};
}

std::string text_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? std::string(json::view(value->get_string()))
                                                : std::string();
}

std::int64_t number_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

bool flag_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_bool() && value->get_bool();
}

const json::Array& list_in(const json::Object& object, std::string_view field) {
  static const json::Array none;
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_array() ? value->get_array() : none;
}

std::optional<CheckState> state_named(std::string_view text) {
  for (const CheckState state : {CheckState::Passed, CheckState::Failed, CheckState::Skipped})
    if (name(state) == text) return state;
  return std::nullopt;
}

json::Object cell_json(const MatrixCell& cell) {
  json::Array checks;
  for (const CheckResult& check : cell.checks)
    checks.push_back(
        json::Object{{"name", check.name}, {"state", name(check.state)}, {"detail", check.detail}});
  json::Array figures;
  for (const Figure& figure : cell.figures) figures.push_back(to_json(figure));
  return {{"model", cell.name.model},
          {"backend", cell.name.backend},
          {"host", cell.name.host},
          {"machine", cell.machine},
          {"made_at", cell.made_at},
          {"state", name(cell.state())},
          {"quant", cell.quant},
          {"device_class", cell.device_class},
          {"build", cell.build},
          {"context", cell.context},
          {"parameters", cell.parameters},
          {"size_bytes", cell.size_bytes},
          {"random", cell.is_random},
          {"quick", cell.is_quick},
          {"checks", std::move(checks)},
          {"figures", std::move(figures)},
          {"ids", json::Array(cell.ids.begin(), cell.ids.end())}};
}

Result<MatrixCell> read_cell(const json::Value& value) {
  const json::Object* object = value.if_object();
  if (object == nullptr) return broken("a cell is no object");
  MatrixCell cell;
  cell.name = {text_in(*object, "model"), text_in(*object, "backend"), text_in(*object, "host")};
  if (cell.name.model.empty() || cell.name.backend.empty() || cell.name.host.empty())
    return broken("a cell has no model, backend or host");
  cell.machine = text_in(*object, "machine");
  cell.made_at = text_in(*object, "made_at");
  cell.quant = text_in(*object, "quant");
  cell.device_class = text_in(*object, "device_class");
  cell.build = text_in(*object, "build");
  cell.context = number_in(*object, "context");
  cell.parameters = number_in(*object, "parameters");
  cell.size_bytes = number_in(*object, "size_bytes");
  cell.is_random = flag_in(*object, "random");
  cell.is_quick = flag_in(*object, "quick");
  for (const json::Value& check : list_in(*object, "checks")) {
    const json::Object* fields = check.if_object();
    const auto state = fields != nullptr ? state_named(text_in(*fields, "state")) : std::nullopt;
    if (!state) return broken(fmt::format("a check of {} has no state", text_of(cell.name)));
    cell.checks.push_back({text_in(*fields, "name"), *state, text_in(*fields, "detail")});
  }
  for (const json::Value& entry : list_in(*object, "figures")) {
    std::optional<Figure> figure = read_figure(entry);
    if (!figure) return broken(fmt::format("a figure of {} is none", text_of(cell.name)));
    cell.figures.push_back(std::move(*figure));
  }
  for (const json::Value& id : list_in(*object, "ids"))
    if (id.is_int64()) cell.ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  return cell;
}

// Why the figures of two cells say nothing about each other; empty: they do.
std::string why_unlike(const MatrixCell& now, const MatrixCell& before) {
  if (now.is_quick != before.is_quick)
    return now.is_quick ? "a quick run beside a whole one" : "a whole run beside a quick one";
  if (now.is_random != before.is_random)
    return now.is_random ? "random weights beside real ones" : "real weights beside random ones";
  return {};
}

void compare_figures(const MatrixCell& now, const MatrixCell& before,
                     std::vector<Difference>& differences) {
  if (const std::string why = why_unlike(now, before); !why.empty()) {
    differences.push_back(
        {now.name, "figures", "figures are not compared: " + why, Change::NotCompared});
    return;
  }
  for (const Figure& was : before.figures)
    if (now.find_figure(was.name) == nullptr)
      differences.push_back(
          {now.name, was.name,
           fmt::format("{}: not measured, was {:.4g} {}", was.name, was.median(), was.unit),
           Change::NotCompared});
  for (const Figure& figure : now.figures) {
    const Figure* was = before.find_figure(figure.name);
    if (was == nullptr || was->unit != figure.unit || was->median() <= 0) continue;
    const double change = figure.median() / was->median() - 1;
    const double worse = figure.is_better_when_more() ? -change : change;
    const double allowed = allowed_change(figure, *was);
    if (worse <= allowed && -worse <= allowed) continue;
    differences.push_back(
        {now.name, figure.name,
         fmt::format("{}: {:.4g} {}, was {:.4g} ({:+.1f} %, ± {:.1f} % is noise)", figure.name,
                     figure.median(), figure.unit, was->median(), change * 100, allowed * 100),
         worse > 0 ? Change::Worse : Change::Better});
  }
}

// What another machine cannot try is not worse.
Change change_of(CheckState now, bool same_machine) {
  switch (now) {
    case CheckState::Passed:
      return Change::Better;
    case CheckState::Failed:
      return Change::Worse;
    case CheckState::Skipped:
      break;
  }
  return same_machine ? Change::Worse : Change::NotCompared;
}

void compare_checks(const MatrixCell& now, const MatrixCell& before, bool same_machine,
                    std::vector<Difference>& differences) {
  for (const CheckResult& check : now.checks) {
    const CheckResult* was = before.find_check(check.name);
    if (was == nullptr || was->state == check.state || was->state == CheckState::Skipped ||
        (was->state == CheckState::Failed && check.state == CheckState::Skipped))
      continue;
    differences.push_back({now.name, check.name,
                           fmt::format("{} {}, was {}: {}", check.name, name(check.state),
                                       name(was->state), check.detail),
                           change_of(check.state, same_machine)});
  }
}

// Older files do not say whose they are.
bool is_of_one_machine(const MatrixCell& a, const MatrixCell& b) {
  return a.machine.empty() || b.machine.empty() || a.machine == b.machine;
}

// That of the same name and machine, else of the same name; null: none.
const MatrixCell* find_beside(const MatrixResult& result, const MatrixCell& cell) {
  const MatrixCell* found = nullptr;
  for (const MatrixCell& other : result.cells) {
    if (other.name != cell.name) continue;
    if (is_of_one_machine(other, cell)) return &other;
    if (found == nullptr) found = &other;
  }
  return found;
}

// Those of the earlier run that this one has not; in one sentence, as a part may be all that was
// asked for.
void name_vanished(const MatrixResult& now, const MatrixResult& before,
                   std::vector<Difference>& differences) {
  std::string names;
  std::size_t count = 0;
  for (const MatrixCell& cell : before.cells) {
    if (find_beside(now, cell) != nullptr || cell.state() == CheckState::Skipped) continue;
    if (++count <= kNamedCells) names += (count > 1 ? ", " : "") + text_of(cell.name);
  }
  if (count > kNamedCells) names += fmt::format(" and {} more", count - kNamedCells);
  if (count > 0)
    differences.push_back({{},
                           "cells",
                           fmt::format("{} of the earlier run {} not here: {}", count,
                                       count == 1 ? "is" : "are", names),
                           Change::NotCompared});
}

}  // namespace

std::string_view name(CheckState state) {
  constexpr std::array<std::string_view, 3> kNames = {"passed", "failed", "skipped"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name(Change change) {
  constexpr std::array<std::string_view, 3> kNames = {"worse", "better", "unlike"};
  return kNames[static_cast<std::size_t>(change)];
}

std::string where_of(const Difference& difference) {
  return difference.cell.model.empty() ? "all cells" : text_of(difference.cell);
}

std::string text_of(const CellName& cell) {
  return fmt::format("{} on {} of {}", cell.model, cell.backend, cell.host);
}

std::optional<CheckResult> compare_backends(const MatrixResult& result, const MatrixCell& cell) {
  for (const MatrixCell& other : result.cells) {
    if (other.name.model != cell.name.model || other.name.host != cell.name.host ||
        other.name.backend == cell.name.backend || other.ids.empty() || cell.ids.empty())
      continue;
    const auto same =
        std::mismatch(cell.ids.begin(), cell.ids.end(), other.ids.begin(), other.ids.end()).first -
        cell.ids.begin();
    const std::string seen =
        fmt::format("{} of {} greedy ids as on {}", same,
                    std::max(cell.ids.size(), other.ids.size()), other.name.backend);
    if (same > 0) return CheckResult{"agrees", CheckState::Passed, seen};
    if (cell.is_random)
      return CheckResult{"agrees", CheckState::Skipped, seen + ": random weights decide nothing"};
    return CheckResult{"agrees", CheckState::Failed, seen + ", expected the first at least"};
  }
  return std::nullopt;
}

CheckState MatrixCell::state() const {
  if (count(CheckState::Failed) > 0) return CheckState::Failed;
  return count(CheckState::Passed) > 0 ? CheckState::Passed : CheckState::Skipped;
}

const CheckResult* MatrixCell::find_check(std::string_view check) const {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const CheckResult& one) { return one.name == check; });
  return found != checks.end() ? &*found : nullptr;
}

const Figure* MatrixCell::find_figure(std::string_view figure) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& one) { return one.name == figure; });
  return found != figures.end() ? &*found : nullptr;
}

std::size_t MatrixCell::count(CheckState state) const {
  return static_cast<std::size_t>(std::count_if(
      checks.begin(), checks.end(), [&](const CheckResult& one) { return one.state == state; }));
}

const MatrixCell* MatrixResult::find(const CellName& cell) const {
  const auto found = std::find_if(cells.begin(), cells.end(),
                                  [&](const MatrixCell& one) { return one.name == cell; });
  return found != cells.end() ? &*found : nullptr;
}

std::size_t MatrixResult::count(CheckState state) const {
  return static_cast<std::size_t>(std::count_if(
      cells.begin(), cells.end(), [&](const MatrixCell& one) { return one.state() == state; }));
}

std::vector<std::string> machines_of(const MatrixResult& result) {
  std::vector<std::string> machines;
  for (const MatrixCell& cell : result.cells)
    if (cell.state() != CheckState::Skipped && !cell.machine.empty() &&
        std::find(machines.begin(), machines.end(), cell.machine) == machines.end())
      machines.push_back(cell.machine);
  if (machines.empty() && !result.machine.empty()) machines.push_back(result.machine);
  return machines;
}

MatrixResult put_together(std::vector<MatrixResult> runs) {
  MatrixResult all;
  for (MatrixResult& run : runs) {
    if (all.machine.empty()) all.machine = run.machine;
    all.made_at = std::max(all.made_at, run.made_at);
    if (all.version.empty())
      all.version = run.version;
    else if (all.version.find(run.version) == std::string::npos)
      all.version += " and " + run.version;
    for (MatrixCell& cell : run.cells) {
      const auto same =
          std::find_if(all.cells.begin(), all.cells.end(), [&](const MatrixCell& other) {
            return other.name == cell.name && other.machine == cell.machine;
          });
      if (same != all.cells.end())
        *same = std::move(cell);
      else
        all.cells.push_back(std::move(cell));
    }
  }
  const std::vector<MatrixCell> seen = all.cells;
  std::erase_if(all.cells, [&](const MatrixCell& cell) {
    return cell.state() == CheckState::Skipped &&
           std::any_of(seen.begin(), seen.end(), [&](const MatrixCell& other) {
             return other.name == cell.name && other.state() != CheckState::Skipped;
           });
  });
  return all;
}

json::Object to_json(const MatrixResult& result) {
  json::Array cells;
  for (const MatrixCell& cell : result.cells) cells.push_back(cell_json(cell));
  return {{"kind", "llorch matrix"},
          {"version", result.version},
          {"made_at", result.made_at},
          {"machine", result.machine},
          {"cells", std::move(cells)}};
}

Result<MatrixResult> parse_matrix(std::string_view text) {
  const Result<json::Value> value = json::parse(text, {.max_bytes = kFileBytesMax});
  if (!value.ok()) return broken(value.error().message);
  const json::Object* object = value->if_object();
  if (object == nullptr || text_in(*object, "kind") != "llorch matrix")
    return broken("\"kind\" is not \"llorch matrix\"");
  MatrixResult result;
  result.version = text_in(*object, "version");
  result.made_at = text_in(*object, "made_at");
  result.machine = text_in(*object, "machine");
  for (const json::Value& entry : list_in(*object, "cells")) {
    Result<MatrixCell> cell = read_cell(entry);
    if (!cell.ok()) return cell.error();
    result.cells.push_back(cell.take());
    // Before one file could hold both kinds, and several machines, it was the file that said which.
    if (flag_in(*object, "quick")) result.cells.back().is_quick = true;
    if (result.cells.back().machine.empty()) result.cells.back().machine = result.machine;
    if (result.cells.back().made_at.empty()) result.cells.back().made_at = result.made_at;
  }
  return result;
}

double allowed_change(const Figure& now, const Figure& before) {
  const auto noise = [](const Figure& figure) {
    return figure.samples.size() > 1 ? figure.noise() : kUnseenNoise;
  };
  return std::min(kNeverAllowed, kAlwaysAllowed + 2 * (noise(now) + noise(before)));
}

std::vector<Difference> compare(const MatrixResult& now, const MatrixResult& before) {
  std::vector<Difference> differences;
  std::vector<std::string> told;
  for (const MatrixCell& cell : now.cells) {
    const MatrixCell* was = find_beside(before, cell);
    if (was == nullptr) continue;
    const bool same_machine = is_of_one_machine(cell, *was);
    if (!same_machine && std::find(told.begin(), told.end(), was->machine) == told.end()) {
      told.push_back(was->machine);
      differences.push_back(
          {{},
           "machine",
           "figures are not compared: the earlier run is of another machine, " + was->machine,
           Change::NotCompared});
    }
    compare_checks(cell, *was, same_machine, differences);
    if (same_machine) compare_figures(cell, *was, differences);
    const bool same_program = cell.build == was->build && cell.device_class == was->device_class &&
                              cell.is_random == was->is_random;
    if (same_program && !cell.build.empty() && !cell.ids.empty() && !was->ids.empty() &&
        cell.ids != was->ids) {
      differences.push_back({cell.name, "ids",
                             "the greedy ids are others, though build and device are the same",
                             Change::Worse});
    }
  }
  name_vanished(now, before, differences);
  return differences;
}

}  // namespace llorch::cli
