#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/host_door.h"
#include "cli/matrix_report.h"

namespace llorch::cli {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ground:#fbfaf8;--card:#fff;--ink:#1d2125;--soft:#667079;--line:#e3e1dc;
--good:#237a4b;--bad:#b3261e;--none:#8a9199;--a:#2f6fb0;--b:#58a0d8;--c:#a9cdea}
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2125;--ink:#e6e8ea;--soft:#98a2ab;--line:#2d343a;
--good:#58c48a;--bad:#ff8a80;--none:#707a83;--a:#6cb2f0;--b:#3f7fb8;--c:#2b5478}}
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 20px 64px;overflow-wrap:anywhere}h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 12px}
.soft{color:var(--soft)}.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 18px;min-width:120px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums}
.good{color:var(--good)}.bad{color:var(--bad)}.none{color:var(--none)}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:8px 9px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}th{font-weight:600;color:var(--soft);font-size:13px}.n{text-align:right}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:8px 0;padding:0 14px}
summary{cursor:pointer;padding:10px 0;font-weight:600}details td{white-space:normal;vertical-align:top}
details td:first-child{white-space:nowrap}.chart{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;
margin:12px 0;overflow-x:auto}svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .soft{fill:var(--soft)}
.a{fill:var(--a)}.b{fill:var(--b)}.c{fill:var(--c)}.grid{stroke:var(--line)}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 6px 0 14px}
)";

std::string escaped(std::string_view text) {
  return base::escape_html(base::printable(text));
}

std::string_view class_of(CheckState state) {
  constexpr std::array<std::string_view, 3> kNames = {"good", "bad", "none"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view mark_of(CheckState state) {
  constexpr std::array<std::string_view, 3> kMarks = {"✓", "✗", "–"};
  return kMarks[static_cast<std::size_t>(state)];
}

// One bar of a group.
struct Bar {
  std::string_view figure;
  std::string_view label;
  std::string_view paint;
};

// The next round number: 1, 2 or 5 with zeros.
double round_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0})
    if (value <= step * power) return step * power;
  return 10 * power;
}

// Of a bar: one that is nothing but noise is as long as itself.
double spread_of(const Figure& figure) {
  return std::min(1.0, figure.noise());
}

// Of the changes, in the order of Change.
constexpr std::array<std::string_view, 3> kChangeClasses = {"bad", "good", "none"};

constexpr int kLabelWidth = 260;
constexpr int kBarsWidth = 640;
constexpr int kValueWidth = 110;
constexpr int kBarHeight = 15;

// Horizontal bars, a group for each cell that has one of the figures; empty without any.
std::string chart(const MatrixResult& result, std::string_view title, std::string_view unit,
                  const std::vector<Bar>& bars) {
  double most = 0;
  for (const MatrixCell& cell : result.cells)
    for (const Bar& bar : bars)
      if (const Figure* figure = cell.find_figure(bar.figure))
        most = std::max(most, figure->median() * (1 + spread_of(*figure)));
  if (most <= 0) return {};
  const double scale = round_up(most);
  std::string body;
  int y = 26;
  for (const MatrixCell& cell : result.cells) {
    std::string group;
    int at = y;
    for (const Bar& bar : bars) {
      const Figure* figure = cell.find_figure(bar.figure);
      if (figure == nullptr) continue;
      const double width = figure->median() / scale * kBarsWidth;
      const double spread = spread_of(*figure) * width;
      group += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" rx=\"3\"><title>{}: "
          "{} ± {:.0f} %</title></rect>",
          bar.paint, kLabelWidth, at, std::max(1.0, width), kBarHeight - 3, escaped(bar.label),
          figure_cell(figure), figure->noise() * 100);
      group += fmt::format(
          "<line class=\"soft\" stroke=\"currentColor\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" "
          "y2=\"{}\"/>",
          kLabelWidth + width - spread, kLabelWidth + width + spread, at + 6, at + 6);
      group += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\">{}</text>",
                           kLabelWidth + width + spread + 6, at + 11, figure_cell(figure));
      at += kBarHeight;
    }
    if (group.empty()) continue;
    const std::string place = place_of(result, cell);
    const std::string label = fmt::format("{}, {}{}", cell.name.model, cell.name.backend,
                                          place == kLocalHost ? "" : " of " + place);
    body += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kLabelWidth - 10,
                        (y + at) / 2 + 3, escaped(label));
    body += group;
    y = at + 10;
  }
  std::string grid;
  for (int i = 0; i <= 4; ++i) {
    const int x = kLabelWidth + kBarsWidth * i / 4;
    grid += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"20\" y2=\"{}\"/>", x, x, y);
    grid +=
        fmt::format("<text class=\"soft\" x=\"{}\" y=\"13\" text-anchor=\"middle\">{:.10g}</text>",
                    x, scale * i / 4);
  }
  std::string legend;
  if (bars.size() > 1)
    for (const Bar& bar : bars)
      legend += fmt::format("<span class=\"key\" style=\"background:var(--{})\"></span>{}",
                            bar.paint, bar.label);
  const int width = kLabelWidth + kBarsWidth + kValueWidth;
  return fmt::format(
      "<div class=\"chart\"><b>{}</b> <span class=\"soft\">{}</span>{}<br><svg role=\"img\" "
      "aria-label=\"{}\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\">{}{}</svg></div>\n",
      title, unit, legend, title, width, y, width, y, grid, body);
}

std::string tile(std::string_view label, std::size_t count, std::string_view paint) {
  return fmt::format("<div class=\"tile\"><b class=\"{}\">{}</b>{}</div>", count > 0 ? paint : "",
                     count, label);
}

std::string overview(const MatrixResult& result) {
  std::string text =
      "<div class=\"wide\"><table><tr><th>model<th>weights<th>backend<th>host<th>state<th "
      "class=\"n\">first token<th class=\"n\">prefill<th class=\"n\">decode<th "
      "class=\"n\">×4<th class=\"n\">×16<th class=\"n\">peak memory</tr>\n";
  for (const MatrixCell& cell : result.cells) {
    text += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{}<td class=\"{}\">{} {}{}", escaped(cell.name.model),
        escaped(cell.quant + (cell.is_random ? ", random" : "")), escaped(cell.name.backend),
        escaped(place_of(result, cell)), class_of(cell.state()), mark_of(cell.state()),
        name(cell.state()), cell.is_quick ? ", quick" : "");
    for (const std::string_view figure : {"first_token_ms", "prefill_tps", "decode_tps_1",
                                          "decode_tps_4", "decode_tps_16", "peak_memory"})
      text += fmt::format("<td class=\"n\">{}", figure_cell(cell.find_figure(figure)));
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

std::string cell_details(const MatrixResult& result, const MatrixCell& cell) {
  std::string text = fmt::format(
      "<details{}><summary><span class=\"{}\">{}</span> {} on {} of {} <span class=\"soft\">{} "
      "passed, {} "
      "failed, {} skipped</span></summary><table>",
      cell.state() == CheckState::Failed ? " open" : "", class_of(cell.state()),
      mark_of(cell.state()), escaped(cell.name.model), escaped(cell.name.backend),
      escaped(place_of(result, cell)), cell.count(CheckState::Passed),
      cell.count(CheckState::Failed), cell.count(CheckState::Skipped));
  for (const CheckResult& check : cell.checks)
    text += fmt::format("<tr><td class=\"{}\">{} {}<td>{}</tr>", class_of(check.state),
                        mark_of(check.state), escaped(check.name), escaped(check.detail));
  return text + "</table></details>\n";
}

// A line for each; numbered where there are several.
std::string machine_lines(const MatrixResult& result) {
  const std::vector<std::string> machines = machines_of(result);
  std::string text;
  for (std::size_t i = 0; i < machines.size(); ++i)
    text += "<br>" + (machines.size() > 1 ? fmt::format("machine {}: ", i + 1) : "") +
            escaped(machines[i]);
  return text;
}

}  // namespace

std::string matrix_html(const MatrixResult& result, const std::vector<Difference>& differences) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>llorch matrix</title><style>{}</style>"
      "</head><body><main>\n<h1>Models, backends, hosts</h1>\n<div class=\"soft\">llorch matrix "
      "{}, "
      "{}{}</div>\n",
      kStyle, escaped(result.version), escaped(result.made_at), machine_lines(result));
  text += fmt::format("<div class=\"tiles\">{}{}{}</div>\n",
                      tile("cells passed", result.count(CheckState::Passed), "good"),
                      tile("failed", result.count(CheckState::Failed), "bad"),
                      tile("skipped", result.count(CheckState::Skipped), "none"));
  for (const std::string& sentence : untried_backends(result))
    text += fmt::format("<p><b class=\"none\">{}</b></p>\n", escaped(sentence));
  text += overview(result);
  if (!differences.empty()) {
    text += "<h2>Beside the earlier run</h2>\n<div class=\"wide\"><table>";
    for (const Difference& difference : differences)
      text += fmt::format("<tr><td class=\"{}\">{}<td>{}<td>{}</tr>",
                          kChangeClasses[static_cast<std::size_t>(difference.change)],
                          name(difference.change), escaped(where_of(difference)),
                          escaped(difference.sentence));
    text += "</table></div>\n";
  }
  const std::string charts =
      chart(result, "Writing", "tokens a second, all streams together",
            {{"decode_tps_1", "1 stream", "a"},
             {"decode_tps_4", "4 streams", "b"},
             {"decode_tps_16", "16 streams", "c"}}) +
      chart(result, "Reading a long prompt", "tokens a second", {{"prefill_tps", "prefill", "a"}}) +
      chart(result, "First token", "milliseconds, prompt of 8 tokens",
            {{"first_token_ms", "first token", "a"}});
  if (!charts.empty()) text += "<h2>Speeds</h2>\n" + charts;
  text += "<h2>Checks</h2>\n";
  for (const MatrixCell& cell : result.cells) text += cell_details(result, cell);
  return text + "</main></body></html>\n";
}

}  // namespace llorch::cli
