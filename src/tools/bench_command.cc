#include "tools/bench_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "tools/bench.h"
#include "tools/command_line.h"

namespace llorch::tools {
namespace {

constexpr std::string_view kProgram = "llorch-bench";
constexpr std::int32_t kTokensMax = 1 << 20;

constexpr const char* kFooter =
    R"(Tests: ppN is the prefill of N tokens, tgN the decode of N tokens one after the other,
"x B" for B sequences together, "@ D" with D tokens in the cache before. The limit
is what the machine could do at best in the same second: reading each weight once a
step at the speed of plain reading, or computing at the speed of its multipliers,
whichever takes longer; all of it measured beside each repeat. Core ms is processor
time a token, the least of the repeats: what a busy machine changes least. Joules are
what all processors of the machine counted for each token; –: they may not be read here.

Examples:
  llorch-bench -m model-q4_k_m.gguf
  llorch-bench -m a.gguf -m b.gguf -p 512 -n 128 -r 5 -o md
  llorch-bench -m model.gguf -p 0 -n 64 -d 4096 -b 16

A model of a well-known shape with random weights to measure with:
  llorch-convert --random qwen2.5-0.5b random-q8_0.gguf --type q8_0


Exit code: 0 when all was measured; 1 when something was not; 2 for a mistake on
the command line.)";

struct Options {
  std::vector<std::string> models;
  BenchRequest request;
  std::string output = "table";
  std::string kv = "f16";
};

std::string size_text(const BenchReport& report) {
  return base::human_bytes(report.file_bytes);
}

// Median over the repeats: one moment's noise moves it little.
template <class Member>
double median_of(const BenchReport& report, Member member) {
  std::vector<double> values;
  for (const compute::HostLimits& limits : report.limits) values.push_back(limits.*member);
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::string facts_text(const BenchReport& report) {
  using compute::HostLimits;
  const double bf16 = median_of(report, &HostLimits::bf16_ops_per_second);
  return fmt::format(
      "{}: {}; loaded in {:.2f} s, first token after {:.0f} ms, peak {}\n"
      "machine: reads {:.1f} GB/s, int8 {:.0f} Gop/s, float {:.0f} GFLOP/s{}, threads meet in "
      "{:.0f} ns\n",
      base::printable(report.model), report.backend, report.load_seconds,
      1e3 * report.first_token_seconds, base::human_bytes(report.peak_bytes),
      1e-9 * median_of(report, &HostLimits::read_bytes_per_second),
      1e-9 * median_of(report, &HostLimits::int8_ops_per_second),
      1e-9 * median_of(report, &HostLimits::float_ops_per_second),
      bf16 > 0 ? fmt::format(", bf16 {:.0f} GFLOP/s", 1e-9 * bf16) : "",
      1e9 * median_of(report, &HostLimits::meeting_seconds));
}

const std::vector<std::string> kColumns = {"model", "type",     "size",  "threads",
                                           "test",  "tokens/s", "±",     "limit",
                                           "share", "core ms",  "joules"};

std::vector<std::string> cells_of(const BenchReport& report, const BenchRow& row) {
  const double limit = row.share() > 0 ? row.mean() / row.share() : 0;
  return {base::printable(report.model),
          base::printable(report.type),
          size_text(report),
          fmt::format("{}", report.threads),
          row.test,
          fmt::format("{:.1f}", row.mean()),
          fmt::format("{:.1f}", row.deviation()),
          fmt::format("{:.0f}", limit),
          fmt::format("{:.0f} %", 100 * row.share()),
          fmt::format("{:.2f}", row.least_core_ms()),
          row.joules.empty() ? "–" : fmt::format("{:.3g}", row.mean_joules())};
}

std::string table_text(const std::vector<BenchReport>& reports, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Right, Align::Right, Align::Left,
                         Align::Right, Align::Right, Align::Right, Align::Right, Align::Right,
                         Align::Right});
  table.add_row(kColumns, base::Color::Dim);
  std::string text;
  for (const BenchReport& report : reports) {
    for (const BenchRow& row : report.rows) table.add_row(cells_of(report, row));
    text += facts_text(report);
  }
  text += table.render(2, color);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string lines_text(const std::vector<BenchReport>& reports, bool markdown) {
  const auto line = [&](const std::vector<std::string>& cells) {
    return markdown ? fmt::format("| {} |\n", fmt::join(cells, " | "))
                    : fmt::format("{}\n", fmt::join(cells, ","));
  };
  std::string text = line(kColumns);
  if (markdown) text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const BenchReport& report : reports) {
    for (const BenchRow& row : report.rows) text += line(cells_of(report, row));
  }
  return text;
}

json::Array numbers(const std::vector<double>& values) {
  json::Array array;
  for (const double value : values) array.push_back(value);
  return array;
}

std::string json_text(const std::vector<BenchReport>& reports) {
  json::Array models;
  for (const BenchReport& report : reports) {
    json::Array tests;
    for (const BenchRow& row : report.rows) {
      tests.push_back(json::Object{{"test", row.test},
                                   {"tokens_per_second", numbers(row.tokens_per_second)},
                                   {"limits", numbers(row.limits)},
                                   {"core_ms_per_token", numbers(row.core_ms)},
                                   {"joules_per_token", numbers(row.joules)},
                                   {"mean", row.mean()},
                                   {"best", row.best()},
                                   {"share", row.share()}});
    }
    json::Array limits;
    for (const compute::HostLimits& beside : report.limits) {
      limits.push_back(json::Object{{"read_bytes_per_second", beside.read_bytes_per_second},
                                    {"int8_ops_per_second", beside.int8_ops_per_second},
                                    {"float_ops_per_second", beside.float_ops_per_second},
                                    {"bf16_ops_per_second", beside.bf16_ops_per_second},
                                    {"meeting_seconds", beside.meeting_seconds}});
    }
    models.push_back(json::Object{{"model", report.model},
                                  {"type", base::printable(report.type)},
                                  {"backend", report.backend},
                                  {"threads", report.threads},
                                  {"file_bytes", report.file_bytes},
                                  {"parameters", report.parameters},
                                  {"load_seconds", report.load_seconds},
                                  {"first_token_seconds", report.first_token_seconds},
                                  {"peak_bytes", report.peak_bytes},
                                  {"tests", std::move(tests)},
                                  {"limits", std::move(limits)}});
  }
  return json::serialize(json::Object{{"models", std::move(models)}}) + "\n";
}

std::string report_text(const std::vector<BenchReport>& reports, const std::string& output,
                        bool color) {
  if (output == "json") return json_text(reports);
  if (output == "md" || output == "csv") return lines_text(reports, output == "md");
  return table_text(reports, color);
}

void describe(CLI::App& app, Options& options) {
  BenchRequest& request = options.request;
  const auto tokens = CLI::Range(0, kTokensMax);
  app.add_option("-m,--model", options.models, "a model file or folder; give it once for each")
      ->required()
      ->type_name("PATH")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-p,--prompt", request.prompt, "tokens of the prefill; 0: none")
      ->capture_default_str()
      ->check(tokens);
  app.add_option("-n,--generate", request.generate, "tokens of the decode; 0: none")
      ->capture_default_str()
      ->check(tokens);
  app.add_option("-d,--depth", request.depth, "tokens in the cache before")
      ->capture_default_str()
      ->check(tokens);
  app.add_option("-b,--batch", request.batch, "sequences that decode together")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("-r,--repeats", request.repeats, "how often each test is run")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("-t,--threads", request.threads, "CPU threads; 0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--isa", request.isa, "instruction set, as avx2; the best by itself");
  app.add_option("--backend", request.backend, "cpu, or a GPU as cuda:0")->capture_default_str();
  app.add_option("--kv", options.kv, "type of the key/value cache: f32, f16 or q8_0")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  CLI::Option* output = app.add_option("-o,--output", options.output, "table, md, json or csv")
                            ->capture_default_str()
                            ->check(CLI::IsMember({"table", "md", "json", "csv"}));
  app.add_flag_callback(
         "--json", [&options] { options.output = "json"; }, "the same as -o json")
      ->excludes(output);
}

}  // namespace

int run_bench_command(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Measures how fast models run on this machine, beside what it could do at best.",
               std::string(kProgram));
  Options options;
  describe(app, options);
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  options.request.kv = options.kv == "q8_0"  ? tensor::DType::Q8_0
                       : options.kv == "f16" ? tensor::DType::F16
                                             : tensor::DType::F32;
  std::vector<BenchReport> reports;
  for (const std::string& path : options.models) {
    base::StatusLine line(stderr);
    options.request.model = path;
    Result<BenchReport> report = run_bench(options.request, [&](const std::string& what) {
      line.show(base::printable(path + ": " + what));
    });
    if (!report.ok()) return fail(kProgram, report.error().message);
    reports.push_back(report.take());
  }
  return print(kProgram, report_text(reports, options.output, base::wants_color(stdout, no_color)));
}

}  // namespace llorch::tools
