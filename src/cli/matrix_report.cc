#include "cli/matrix_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/terminal.h"
#include "cli/host_door.h"

namespace llorch::cli {
namespace {

using base::Color;
using base::TextTable;
using Align = TextTable::Align;

// The figures of a row, in the order of its columns.
constexpr std::string_view kColumns[] = {"first_token_ms", "prefill_tps",   "decode_tps_1",
                                         "decode_tps_4",   "decode_tps_16", "peak_memory"};

Color color_of(CheckState state) {
  switch (state) {
    case CheckState::Passed:
      return Color::Green;
    case CheckState::Failed:
      return Color::Red;
    case CheckState::Skipped:
      return Color::Dim;
  }
  return Color::None;
}

// "Q4_K_M", "Q4_K_M, random", "-".
std::string weights_text(const MatrixCell& cell) {
  const std::string quant = cell.quant.empty() ? "-" : cell.quant;
  return cell.is_random ? quant + ", random" : quant;
}

std::string checks_text(const MatrixCell& cell) {
  std::string text = std::to_string(cell.count(CheckState::Passed));
  if (const std::size_t bad = cell.count(CheckState::Failed); bad > 0)
    text += fmt::format(", {} failed", bad);
  if (const std::size_t left = cell.count(CheckState::Skipped); left > 0)
    text += fmt::format(", {} skipped", left);
  return cell.is_quick ? text + ", quick" : text;
}

// Markdown's own characters in text from elsewhere.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : base::printable(text)) {
    if (c == '|' || c == '`' || c == '*' || c == '_' || c == '<' || c == '[') out += '\\';
    out += c;
  }
  return out;
}

void add_cell_row(TextTable& table, const MatrixResult& result, const MatrixCell& cell) {
  std::vector<std::string> row = {base::printable(cell.name.model), cell.name.backend,
                                  base::printable(place_of(result, cell)),
                                  std::string(name(cell.state())), checks_text(cell)};
  for (const std::string_view figure : kColumns)
    row.push_back(figure_cell(cell.find_figure(figure)));
  table.add_row(std::move(row),
                cell.state() == CheckState::Passed ? Color::None : color_of(cell.state()));
}

// Reasons with the cells that share them, in the order in which they first came; of one check
// alone where it is named.
std::vector<std::pair<std::string, std::vector<std::string>>> by_reason(const MatrixResult& result,
                                                                        CheckState state,
                                                                        std::string_view of = {}) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const MatrixCell& cell : result.cells) {
    for (const CheckResult& check : cell.checks) {
      if (check.state != state || (!of.empty() && check.name != of)) continue;
      const std::string reason = fmt::format("{}: {}", check.name, check.detail);
      auto found = std::find_if(all.begin(), all.end(),
                                [&](const auto& entry) { return entry.first == reason; });
      if (found == all.end()) found = all.insert(all.end(), {reason, {}});
      const std::string place = place_of(result, cell);
      found->second.push_back(
          place == kLocalHost
              ? fmt::format("{} ({})", cell.name.model, cell.name.backend)
              : fmt::format("{} ({} of {})", cell.name.model, cell.name.backend, place));
    }
  }
  return all;
}

// All of them, or of many the first ones: the JSON has the rest.
std::string joined(const std::vector<std::string>& words) {
  constexpr std::size_t kAll = 6;
  constexpr std::size_t kFirst = 3;
  const std::size_t shown = words.size() > kAll ? kFirst : words.size();
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + words[i];
  return shown < words.size() ? fmt::format("{} and {} more", text, words.size() - shown) : text;
}

// The day on which a machine's newest cell was made.
std::string day_of(const MatrixResult& result, const std::string& machine) {
  std::string newest;
  for (const MatrixCell& cell : result.cells)
    if (cell.machine == machine) newest = std::max(newest, cell.made_at);
  return (newest.empty() ? result.made_at : newest).substr(0, 10);
}

// "2026-11-16, on AMD …, 2 cores"; of several "on machine 1: AMD …, 2026-11-16; machine 2: …".
std::string machines_text(const MatrixResult& result) {
  const std::vector<std::string> machines = machines_of(result);
  if (machines.empty()) return result.made_at.substr(0, 10);
  if (machines.size() == 1)
    return fmt::format("{}, on {}", day_of(result, machines[0]), plain(machines[0]));
  std::string text;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const std::string day = day_of(result, machines[i]);
    text += fmt::format("{} machine {}: {}{}", i > 0 ? ";" : "on", i + 1, plain(machines[i]),
                        day.empty() ? "" : ", " + day);
  }
  return text;
}

// Whether two cells of a model are of one host, or of two machines with the same weights.
bool are_beside(const MatrixCell& a, const MatrixCell& b) {
  if (a.machine == b.machine) return a.name.host == b.name.host;
  return a.quant == b.quant && a.size_bytes > 0 && a.size_bytes == b.size_bytes;
}

std::string reasons_markdown(const MatrixResult& result, CheckState state, std::string_view title,
                             std::string_view of = {}) {
  const auto reasons = by_reason(result, state, of);
  if (reasons.empty()) return {};
  std::string text = fmt::format("\n## {}\n\n", title);
  for (const auto& [reason, cells] : reasons)
    text += fmt::format("* {} – {}\n", plain(reason), plain(joined(cells)));
  return text;
}

}  // namespace

std::string figure_cell(const Figure* figure) {
  if (figure == nullptr) return "-";
  const double median = figure->median();
  if (figure->unit == "bytes") return base::human_bytes(static_cast<std::int64_t>(median));
  if (figure->unit == "ms" && median >= 1000) return fmt::format("{:.2f} s", median / 1000);
  const std::string number = fmt::format("{:.{}f}", median, median < 10 ? 1 : 0);
  return figure->unit == "ms" ? number + " ms" : number;
}

std::string place_of(const MatrixResult& result, const MatrixCell& cell) {
  const std::vector<std::string> machines = machines_of(result);
  const auto at = std::find(machines.begin(), machines.end(), cell.machine);
  if (machines.size() < 2 || at == machines.end()) return cell.name.host;
  const std::string machine = fmt::format("machine {}", at - machines.begin() + 1);
  return cell.name.host == kLocalHost ? machine : cell.name.host + " of " + machine;
}

std::vector<std::string> agreements(const MatrixResult& result) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    for (std::size_t k = i + 1; k < result.cells.size(); ++k) {
      const MatrixCell& a = result.cells[i];
      const MatrixCell& b = result.cells[k];
      if (a.name.model != b.name.model || a.ids.empty() || b.ids.empty() || !are_beside(a, b))
        continue;
      const auto same =
          std::mismatch(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end()).first -
          a.ids.begin();
      const std::size_t most = std::max(a.ids.size(), b.ids.size());
      sentences.push_back(
          a.machine == b.machine
              ? fmt::format("{} of {}: {} and {} agree on {} of {} greedy ids", a.name.model,
                            place_of(result, a), a.name.backend, b.name.backend, same, most)
              : fmt::format("{}: {} of {} and {} of {} agree on {} of {} greedy ids", a.name.model,
                            a.name.backend, place_of(result, a), b.name.backend,
                            place_of(result, b), same, most));
    }
  }
  return sentences;
}

std::vector<std::string> untried_backends(const MatrixResult& result) {
  std::map<std::string, std::map<std::string, int>> reasons;  // of each backend, how often
  for (const MatrixCell& cell : result.cells)
    for (const CheckResult& check : cell.checks) ++reasons[cell.name.backend][check.detail];
  std::vector<std::string> sentences;
  for (const auto& [backend, all] : reasons) {
    const bool is_tried = std::any_of(
        result.cells.begin(), result.cells.end(), [&backend = backend](const MatrixCell& cell) {
          return cell.name.backend == backend && cell.state() != CheckState::Skipped;
        });
    const auto most = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (!is_tried)
      sentences.push_back(fmt::format("Nothing was tried on {}: {}.", backend, most->first));
  }
  return sentences;
}

std::string matrix_table(const MatrixResult& result, const std::vector<CellName>& wanted,
                         const MatrixMoment* now, bool color) {
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Left, Align::Right,
                   Align::Right, Align::Right, Align::Right, Align::Right, Align::Right});
  table.add_row({"MODEL", "BACKEND", "HOST", "STATE", "CHECKS", "FIRST", "PREFILL", "DECODE", "×4",
                 "×16", "PEAK"},
                Color::Bold);
  if (wanted.empty())
    for (const MatrixCell& cell : result.cells) add_cell_row(table, result, cell);
  for (const CellName& name : wanted) {
    if (const MatrixCell* cell = result.find(name); cell != nullptr) {
      add_cell_row(table, result, *cell);
      continue;
    }
    const bool runs = now != nullptr && now->cell == name;
    std::vector<std::string> row = {base::printable(name.model), name.backend,
                                    base::printable(name.host), runs ? "runs" : "waits"};
    if (runs) row.push_back(fmt::format("{}/{} {}", now->number, now->count, now->check));
    row.resize(11);
    table.add_row(std::move(row), runs ? Color::Yellow : Color::Dim);
  }
  return table.render(0, color);
}

std::string matrix_screen(const MatrixResult& result, const std::vector<CellName>& wanted,
                          const MatrixMoment& now, std::size_t width, std::size_t height) {
  const std::size_t rows = std::max<std::size_t>(1, height > 3 ? height - 3 : 1);
  std::vector<CellName> near = wanted;
  if (wanted.size() > rows) {
    const auto at = static_cast<std::size_t>(std::find(wanted.begin(), wanted.end(), now.cell) -
                                             wanted.begin());
    const std::size_t first = std::min(at > rows / 2 ? at - rows / 2 : 0, wanted.size() - rows);
    near.assign(wanted.begin() + static_cast<std::ptrdiff_t>(first),
                wanted.begin() + static_cast<std::ptrdiff_t>(first + rows));
  }
  std::string text;
  std::size_t column = 0;
  for (const char c : matrix_table(result, near, &now, false)) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    if (c == '\n')
      column = 0;
    else if (!continues)
      ++column;
    if (c == '\n' || column < width) text += c;
  }
  return text;
}

std::string matrix_remarks(const MatrixResult& result, bool color) {
  std::string text;
  for (const CheckState state : {CheckState::Failed, CheckState::Skipped}) {
    for (const auto& [reason, cells] : by_reason(result, state)) {
      text += fmt::format("{} {}\n          {}\n",
                          base::paint(fmt::format("{:<9}", name(state)), color_of(state), color),
                          base::printable(reason), base::printable(joined(cells)));
    }
  }
  for (const std::string& sentence : agreements(result)) text += base::printable(sentence) + "\n";
  return text;
}

std::string matrix_markdown(const MatrixResult& result) {
  std::string text = "# Models that were tried\n\n";
  text += fmt::format(
      "Made by `llorch matrix --markdown`, version {}, {}.\n"
      "{} cells passed, {} failed, {} were skipped. Speeds are medians in tokens a second (first "
      "token: milliseconds),\nas somebody who asks sees them; how busy the machine was counts. "
      "Random weights have the shape and the numbers of\nthe real model, and are as large and as "
      "fast; what they say means nothing. Quick: with fewer requests and repetitions "
      "(`--quick`).\n\n",
      result.version, machines_text(result), result.count(CheckState::Passed),
      result.count(CheckState::Failed), result.count(CheckState::Skipped));
  for (const std::string& sentence : untried_backends(result))
    text += fmt::format("**{}**\n\n", plain(sentence));
  text +=
      "| model | weights | size | backend | host | state | checks | first token | prefill | decode "
      "| 4 streams | 16 streams | peak memory |\n"
      "|---|---|---:|---|---|---|---|---:|---:|---:|---:|---:|---:|\n";
  for (const MatrixCell& cell : result.cells) {
    if (cell.state() == CheckState::Skipped) continue;  // told below, with the reason
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} |", plain(cell.name.model), plain(weights_text(cell)),
        cell.size_bytes > 0 ? base::human_bytes(cell.size_bytes) : "-", cell.name.backend,
        plain(place_of(result, cell)), name(cell.state()), checks_text(cell));
    for (const std::string_view figure : kColumns)
      text += fmt::format(" {} |", figure_cell(cell.find_figure(figure)));
    text += "\n";
  }
  text += reasons_markdown(result, CheckState::Failed, "Failed");
  text += reasons_markdown(result, CheckState::Passed, "Random weights", "draw");
  if (const std::vector<std::string> sentences = agreements(result); !sentences.empty()) {
    text += "\n## One backend beside another\n\n";
    for (const std::string& sentence : sentences) text += fmt::format("* {}\n", plain(sentence));
  }
  text += reasons_markdown(result, CheckState::Skipped, "Not tried, and why");
  text +=
      "\n## What is tried\n\n"
      "fetch: where it was not here. draw: random weights, where it could not be had. plan: would "
      "it fit. load: a worker with exactly that plan. "
      "checkpoints: twelve stages from "
      "the first norm to ids, against a slow\nreference in double precision. ids: a greedy answer "
      "twice and among others, the same ids. golden: the ids that transformers\ncontinues with. "
      "chat: through OpenAI's endpoint. cancel: in a long prompt and while writing; slots are free "
      "and the greedy ids\nthe same afterwards. Then an empty prompt, the longest and one token "
      "more, unicode, a stop text across two tokens, eight\ncancels in a row, a path without a "
      "model, a file cut at two thirds, bursts of 10 and 64, a soak whose second half\nmust not "
      "grow, speeds, joules where they are counted, the peak of memory against the plan, and on "
      "a second backend the greedy ids of the first.\n";
  return text;
}

}  // namespace llorch::cli
