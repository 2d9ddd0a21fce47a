#include "tools/perplexity_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "compute/create.h"
#include "formats/summary.h"
#include "model/load.h"
#include "tokenizer/load.h"
#include "tools/command_line.h"
#include "tools/perplexity.h"

namespace llorch::tools {
namespace {

constexpr std::string_view kProgram = "llorch-perplexity";
constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;
constexpr std::int32_t kContextMax = 1 << 20;

constexpr const char* kFooter =
    R"(The text is cut into windows of --ctx tokens; the tokens of each window's second
half are scored, given those before them, and a window starts with the model's
beginning-of-text token where it has one: the numbers compare with those of
llama-perplexity. Lower is better; compare only models with the same tokenizer.

Examples:
  llorch-perplexity --model model-f16.gguf --model model-q4_k_m.gguf --text wiki.test.raw
  llorch-perplexity --model models/TinyLlama --text story.txt --ctx 256 --windows 20 --json

--json prints one object: text, context, models [{model, type, bytes,
bits_per_weight, windows, tokens, perplexity, error, ratio, tokens_per_second}].

Exit code: 0 when all models were scored; 1 when one was not; 2 for a mistake on
the command line.)";

struct Options {
  std::vector<std::string> models;
  std::string text;
  std::int32_t context = 512;
  std::int32_t max_windows = 0;
  std::string backend = "cpu";
  std::string kv = "f32";
  std::string input;
  std::string weights = "exact";
  int threads = 0;
  bool special = false;
  bool json = false;
};

struct Row {
  std::string model, type;
  std::int64_t file_bytes = 0;
  double bits_per_weight = 0;
  std::int64_t windows = 0;
  Score score;
  double tokens_per_second = 0;
};

void describe_file(const formats::WeightFile& file, Row& row) {
  const formats::FileSummary summary = formats::summarize(file);
  row.type = summary.quantization;
  row.file_bytes = summary.file_bytes;
  if (summary.parameters > 0) {
    row.bits_per_weight =
        8.0 * static_cast<double>(summary.tensor_bytes) / static_cast<double>(summary.parameters);
  }
}

Result<std::unique_ptr<model::TransformerRunner>> make_runner(
    const std::shared_ptr<const model::LoadedModel>& loaded, compute::Backend& backend,
    const Options& options) {
  model::RunnerOptions runner;
  runner.kv_dtype = options.kv == "q8_0"  ? tensor::DType::Q8_0
                    : options.kv == "f16" ? tensor::DType::F16
                                          : tensor::DType::F32;
  runner.limits.sequences = 1;
  runner.limits.num_blocks =
      (options.context + runner.limits.block_tokens - 1) / runner.limits.block_tokens;
  return model::TransformerRunner::make(loaded, backend, runner);
}

Result<Row> score_model(const std::string& path, std::string_view text, const Options& options,
                        compute::Backend& backend) {
  Row row;
  row.model = path;
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(path);
  if (!tokenizer.ok()) return tokenizer.error();
  Result<std::vector<tokenizer::TokenId>> ids =
      tokenizer->encode(text, {.add_special = true, .parse_special = options.special});
  if (!ids.ok()) return ids.error().in(options.text);
  // The beginning stands in each window, not before the text; what ends a text has no place here.
  WindowOptions windows{.context = options.context, .max_windows = options.max_windows};
  if (!tokenizer->prefix_ids().empty()) windows.bos = tokenizer->prefix_ids().front();
  ids->resize(ids->size() - tokenizer->suffix_ids().size());

  Result<std::shared_ptr<const model::LoadedModel>> loaded = model::load_model(path, backend);
  if (!loaded.ok()) return loaded.error();
  describe_file(*loaded.value()->file, row);
  if (options.context > loaded.value()->config.context_length) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: the model's context is {}; use a smaller --ctx than {}", path,
                             loaded.value()->config.context_length, options.context)};
  }
  Result<std::unique_ptr<model::TransformerRunner>> runner =
      make_runner(loaded.value(), backend, options);
  if (!runner.ok()) return runner.error();
  base::StatusLine line(stderr);
  const auto begin = std::chrono::steady_clock::now();
  Result<Score> score =
      score_windows(*runner.value(), ids.value(), windows,
                    [&](std::int64_t done, std::int64_t all, const Score& so_far) {
                      const double fraction = static_cast<double>(done) / static_cast<double>(all);
                      line.show(fmt::format("{} {}/{}  {:.4f}", base::progress_bar(fraction, 30),
                                            done, all, so_far.perplexity()));
                    });
  if (!score.ok()) return score.error().in(path);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  row.windows = count_windows(ids->size(), windows);
  row.score = score.value();
  row.tokens_per_second = static_cast<double>(row.windows * options.context) / seconds.count();
  return row;
}

std::string table_text(const std::vector<Row>& rows, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Right, Align::Right, Align::Right,
                         Align::Right, Align::Right});
  table.add_row({"model", "type", "size", "bits/weight", "perplexity", "vs first", "tokens/s"},
                base::Color::Dim);
  const double first = rows.front().score.perplexity();
  for (const Row& row : rows) {
    const double ratio = row.score.perplexity() / first;
    table.add_row(
        {base::printable(std::filesystem::path(row.model).filename().string()),
         base::printable(row.type), base::human_bytes(row.file_bytes),
         fmt::format("{:.2f}", row.bits_per_weight),
         fmt::format("{:.4f} ± {:.4f}", row.score.perplexity(), row.score.standard_error()),
         &row == &rows.front() ? "" : fmt::format("{:+.2f} %", 100 * (ratio - 1)),
         fmt::format("{:.0f}", row.tokens_per_second)});
  }
  std::string text = table.render(2, color);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string json_text(const std::vector<Row>& rows, const Options& options) {
  json::Array models;
  for (const Row& row : rows) {
    models.push_back(
        json::Object{{"model", row.model},
                     {"type", base::printable(row.type)},
                     {"bytes", row.file_bytes},
                     {"bits_per_weight", row.bits_per_weight},
                     {"windows", row.windows},
                     {"tokens", row.score.tokens},
                     {"perplexity", row.score.perplexity()},
                     {"error", row.score.standard_error()},
                     {"ratio", row.score.perplexity() / rows.front().score.perplexity()},
                     {"tokens_per_second", row.tokens_per_second}});
  }
  return json::serialize(json::Object{
             {"text", options.text}, {"context", options.context}, {"models", std::move(models)}}) +
         "\n";
}

Result<std::vector<Row>> score_all(const Options& options) {
  Result<std::string> text = base::read_text_file(options.text, kTextBytesMax);
  if (!text.ok()) return text.error();
  Result<std::unique_ptr<compute::Backend>> backend = compute::make_backend(
      options.backend,
      {.threads = options.threads,
       .input = compute::find_input_form(options.input),
       .weights = compute::find_weight_form(options.weights).value_or(compute::WeightForm::Exact)});
  if (!backend.ok()) return backend.error();
  std::vector<Row> rows;
  for (const std::string& path : options.models) {
    Result<Row> row = score_model(path, text.value(), options, *backend.value());
    if (!row.ok()) return row.error();
    rows.push_back(row.take());
  }
  return rows;
}

void describe(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "a model file or folder; give it once for each model")
      ->required()
      ->type_name("PATH")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--text", options.text, "a text file in UTF-8")->required()->type_name("PATH");
  app.add_option("--ctx", options.context, "tokens of a window")
      ->capture_default_str()
      ->check(CLI::Range(4, kContextMax));
  app.add_option("--windows", options.max_windows, "score at most so many windows; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--backend", options.backend, "cpu, cuda:N or reference")->capture_default_str();
  app.add_option("--kv", options.kv, "type of the key/value cache: f32, f16 or q8_0")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  app.add_option("--input", options.input,
                 "what products take their input in: f32, f16, bf16, or int8 (block types only); "
                 "with cpu or reference. Without it: what the backend does in earnest")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
  app.add_option("--weights", options.weights,
                 "what products take weights in: exact, or half (each rounded to 16 bits, as CUDA "
                 "has them); half with reference alone")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "half"}));
  app.add_option("--threads", options.threads, "CPU threads; 0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_flag(
      "--special", options.special,
      "markers in the text such as <|im_start|> are the model's tokens: for chats as a chat "
      "template writes them");
  app.add_flag("--json", options.json, "print one JSON object");
}

}  // namespace

int run_perplexity(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Measures how well models predict a text, to compare quantisations.",
               std::string(kProgram));
  Options options;
  describe(app, options);
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  const Result<std::vector<Row>> rows = score_all(options);
  if (!rows.ok()) {
    return fail(kProgram, rows.error().message);
  }
  return print(kProgram, options.json
                             ? json_text(rows.value(), options)
                             : table_text(rows.value(), base::wants_color(stdout, no_color)));
}

}  // namespace llorch::tools
