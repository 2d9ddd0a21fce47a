#include "tools/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>

#include "base/json.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "compute/create.h"
#include "compute/reference/reference_backend.h"
#include "model/checkpoints.h"
#include "model/rounding_sides.h"
#include "tokenizer/load.h"
#include "tools/command_line.h"
#include "tools/outside_reference.h"

namespace llorch::tools {
namespace {

using model::CheckpointResult;
using model::Trace;

// "Hello." and what gpt2-medium says next, greedily: " I'm a little late to the party, but".
constexpr std::array<std::int32_t, 2> kHello = {15496, 13};
constexpr std::array<std::int32_t, 10> kMediumContinues = {314, 1101, 257,  1310, 2739,
                                                           284, 262,  2151, 11,   475};
constexpr std::string_view kProgram = "llorch-checkpoints";
constexpr std::string_view kFooter =
    "Examples:\n"
    "  llorch-checkpoints --model models/gpt2-medium\n"
    "  llorch-checkpoints --model gpt2.gguf --threads 4 --json\n\n"
    "Exit code: 0 all passed, 1 a checkpoint failed or the model does not load, 2 usage.";
constexpr std::string_view kMediumText = " I'm a little late to the party, but";
constexpr std::int32_t kGpt2Vocabulary = 50257;
constexpr std::int32_t kOtherPromptTokens = 8;
// What models with a tokenizer are given, and how much of it at most.
constexpr std::string_view kText =
    "Once upon a time, there was a small town by the sea. Every morning the old man walked to the "
    "harbour";
constexpr std::size_t kTextTokensMax = 32;
constexpr double kOutsideTolerance = 1e-3;  // logits, float32 against float32

struct Options {
  std::string model_path;
  std::string backend = "cpu";
  int threads = 0;
  std::string input = "f32";
  bool json = false;
};

// Our logits and ids against those of another program.
struct OutsideResult {
  std::string reference;       // what it was compared with, or why with nothing
  std::optional<bool> passed;  // nothing: not compared
  double max_error = 0;
  std::size_t same_ids = 0;  // of the greedy continuation
};

struct Outcome {
  std::shared_ptr<const model::LoadedModel> model;
  std::string backend_name;
  std::vector<CheckpointResult> ladder;
  std::vector<std::int32_t> ids;  // prompt and continuation
  std::size_t prompt_tokens = 0;
  std::optional<bool> mission_text;  // gpt2-medium only: does "Hello." continue as it must?
  std::string prompt_from;           // where the prompt comes from, in words
  OutsideResult outside;
  std::int64_t num_rounded = 0;  // numbers that products rounded, on the reference
  std::int64_t num_taken = 0;    // of those: taken from the backend (rounding_sides.h)

  bool passed() const {
    return std::ranges::all_of(ladder, &CheckpointResult::passed) && mission_text.value_or(true) &&
           outside.passed.value_or(true);
  }
};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::string from;
};

// The outside reference's own prompt; GPT-2's "Hello."; text through the model's tokenizer; for
// bare weights, ids of no meaning.
Prompt choose_prompt(const std::filesystem::path& path, const model::ModelConfig& config,
                     const std::optional<OutsideReference>& outside) {
  if (outside) return {outside->prompt, "golden.json"};
  if (config.architecture == "gpt2" && config.vocab_size == kGpt2Vocabulary)
    return {{kHello.begin(), kHello.end()}, "\"Hello.\" in GPT-2's ids"};
  const Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(path);
  Result<std::vector<tokenizer::TokenId>> text =
      tokenizer.ok() ? tokenizer->encode(kText, {.add_special = true})
                     : Result<std::vector<tokenizer::TokenId>>(tokenizer.error());
  if (text.ok()) {
    std::vector<std::int32_t> ids = text.take();
    ids.resize(std::min(
        {ids.size(), kTextTokensMax, static_cast<std::size_t>(config.context_length) / 2}));
    const bool fits = std::ranges::all_of(ids, [&](auto id) { return id < config.vocab_size; });
    if (fits && !ids.empty()) return {std::move(ids), "text through the model's tokenizer"};
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < std::min(kOtherPromptTokens, config.context_length); ++i)
    ids.push_back((i * 7919 + 11) % config.vocab_size);
  return {std::move(ids), "ids of no meaning: the model has no tokenizer that fits it"};
}

// Weights of floating point are the numbers that another program had; blocks of integers are not.
bool has_quantised_weights(const formats::WeightFile& file) {
  return std::ranges::any_of(file.tensors(), [](const formats::WeightTensor& tensor) {
    return tensor::is_block_type(tensor.dtype);
  });
}

OutsideResult compare_outside(const std::optional<OutsideReference>& outside, const Trace& ours,
                              const model::LoadedModel& model) {
  if (!outside) return {"none: no golden.json beside the model", {}, 0, 0};
  const std::string name = fmt::format("golden_logits.npy ({})", outside->made_by);
  if (has_quantised_weights(*model.file))
    return {name + ": not compared, the weights are quantised", {}, 0, 0};
  OutsideResult result{name, true, 0, 0};
  const std::vector<float>& logits = ours.tensors.at("logits").values;
  CHECK(logits.size() == outside->logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double difference = std::abs(double{logits[i]} - outside->logits[i]);
    // Not a number counts as far away.
    if (!(difference <= result.max_error))
      result.max_error =
          std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
  }
  const std::size_t both = std::min(ours.greedy_ids.size(), outside->greedy.size());
  std::size_t same = 0;
  while (same < both && ours.greedy_ids[same] == outside->greedy[same]) ++same;
  result.same_ids = same > ours.ids.size() ? same - ours.ids.size() : 0;
  result.passed = result.max_error <= kOutsideTolerance && same == both;
  return result;
}

// One backend's run, and the same continuation made one row at a time: prefill must equal decode.
Result<Trace> run_on(compute::Backend& backend, const std::filesystem::path& path,
                     std::optional<OutsideReference>& outside, Outcome& outcome,
                     model::RoundingSides* sides = nullptr) {
  Result<std::shared_ptr<const model::LoadedModel>> loaded = model::load_model(path, backend);
  if (!loaded.ok()) return loaded.error();
  outcome.model = loaded.value();
  const model::ModelConfig& config = outcome.model->config;
  Result<std::optional<OutsideReference>> found =
      find_outside_reference(path, config.vocab_size, config.context_length);
  if (!found.ok()) return found.error();
  outside = found.take();
  const auto [ids, from] = choose_prompt(path, config, outside);
  outcome.prompt_from = from;
  const auto room = outcome.model->config.context_length - static_cast<std::int32_t>(ids.size());
  return model::record_trace(loaded.value(), backend, ids,
                             std::min(static_cast<std::int32_t>(kMediumContinues.size()), room),
                             sides);
}

// Says what takes long, to people only.
void announce(std::string_view what) {
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "{}\n", what);
}

Result<Outcome> climb(const Options& options) {
  Outcome outcome;
  const std::optional<compute::InputForm> input = compute::find_input_form(options.input);
  if (!input) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--input {}: expected f32, f16, bf16 or int8", options.input)};
  }
  Result<std::unique_ptr<compute::Backend>> backend =
      compute::make_backend(options.backend, {.threads = options.threads, .input = *input});
  if (!backend.ok()) return backend.error();
  outcome.backend_name = backend.value()->name();
  announce(fmt::format("running {} on {} …", options.model_path, outcome.backend_name));
  std::optional<OutsideReference> outside;
  Result<Trace> ours = run_on(*backend.value(), options.model_path, outside, outcome);
  if (!ours.ok()) return ours.error();
  outcome.outside = compare_outside(outside, ours.value(), *outcome.model);

  // What a backend declares to round is rounded on both sides, and to the same side: what is left
  // to compare is how it computes.
  compute::Backend& declared = *backend.value();
  model::RoundingSides sides(ours.value());
  const std::unique_ptr<compute::Backend> reference = compute::make_reference_backend(
      {.products = [&](tensor::DType weight) { return declared.input_form(weight); },
       .weights = [&](tensor::DType weight) { return declared.weight_form(weight); },
       .attention = [&](tensor::DType cache) { return declared.attention_form(cache); },
       .taken = [&](auto form, const auto& x, auto row) { return sides.take(form, x, row); }});
  announce("running it again on the slow reference backend …");
  Result<Trace> expected = run_on(*reference, options.model_path, outside, outcome, &sides);
  if (!expected.ok()) return expected.error();
  outcome.num_rounded = sides.num_rounded();
  outcome.num_taken = sides.num_taken();
  outcome.ladder = model::compare(ours.value(), expected.value());
  outcome.ids = ours->greedy_ids;
  outcome.prompt_tokens = ours->ids.size();
  if (outcome.model->config.variant == "gpt2-medium" &&
      outcome.model->config.vocab_size == kGpt2Vocabulary) {
    outcome.mission_text =
        std::ranges::equal(std::span(outcome.ids).subspan(outcome.prompt_tokens), kMediumContinues);
  }
  return outcome;
}

template <class Verdict>
std::string describe_outside(const OutsideResult& outside, const Verdict& verdict) {
  const std::string reference = base::printable(outside.reference);
  if (!outside.passed) return reference;
  return fmt::format(
      "{}: {}", reference,
      verdict(*outside.passed,
              fmt::format("{}max error {:.2g}, tolerance {:g}; {} ids continue alike",
                          *outside.passed ? "" : "FAIL: ", outside.max_error, kOutsideTolerance,
                          outside.same_ids)));
}

bool has_large_numbers(std::span<const CheckpointResult> ladder) {
  return std::any_of(ladder.begin(), ladder.end(), [](const CheckpointResult& rung) {
    return rung.passed && rung.max_error > rung.checkpoint.tolerance;
  });
}

std::string table_text(const Outcome& outcome, bool color) {
  std::string text;
  const auto out = std::back_inserter(text);
  const auto verdict = [color](bool good, std::string_view words) {
    return base::paint(words, good ? base::Color::Green : base::Color::Red, color);
  };
  const model::ModelConfig& config = outcome.model->config;
  fmt::format_to(
      out, "{}\n",
      base::paint(base::printable(outcome.model->file->path().string()), base::Color::Bold, color));
  fmt::format_to(out, "{} parameters, {} layers of width {}, {} heads, vocabulary {}, context {}\n",
                 base::human_count(outcome.model->num_parameters), config.num_layers,
                 config.hidden_dim, config.num_heads, config.vocab_size, config.context_length);
  fmt::format_to(out, "{}{} on {}, against the reference backend\n\n", config.architecture,
                 config.variant.empty() ? "" : fmt::format(" ({})", config.variant),
                 outcome.backend_name);

  using Align = base::TextTable::Align;
  base::TextTable table({Align::Right, Align::Left, Align::Right, Align::Right, Align::Left});
  table.add_row({"#", "checkpoint", "max error", "tolerance", "result"}, base::Color::Dim);
  for (const CheckpointResult& rung : outcome.ladder) {
    const double tolerance = rung.checkpoint.tolerance;
    table.add_row({fmt::format("{}", rung.checkpoint.number), std::string(rung.checkpoint.name),
                   fmt::format("{:.2g}", rung.max_error),
                   tolerance == 0 ? "exact" : fmt::format("{:g}", tolerance),
                   rung.passed ? "pass" : "FAIL: " + rung.difference},
                  rung.passed ? base::Color::None : base::Color::Red);
  }
  fmt::format_to(out, "{}\n", table.render(2, color));
  if (has_large_numbers(outcome.ladder))
    fmt::format_to(out, "  numbers beyond tolerance / {:g} are held to that part of themselves\n\n",
                   model::kOfItself);
  const std::span<const std::int32_t> ids(outcome.ids);
  fmt::format_to(out, "  prompt      {}\n  prompt ids  {}\n  greedy ids  {}\n", outcome.prompt_from,
                 fmt::join(ids.first(outcome.prompt_tokens), " "),
                 fmt::join(ids.subspan(outcome.prompt_tokens), " "));
  if (outcome.num_rounded > 0) {
    fmt::format_to(out,
                   "  roundings   {} of {} inputs of products lie between two numbers of their "
                   "form: taken as the backend has them\n",
                   outcome.num_taken, outcome.num_rounded);
  }
  fmt::format_to(out, "  outside     {}\n", describe_outside(outcome.outside, verdict));
  if (outcome.mission_text) {
    fmt::format_to(
        out, "  \"Hello.\"    {}\n",
        verdict(*outcome.mission_text,
                fmt::format("{}\"{}\"", *outcome.mission_text ? "continues " : "FAIL: expected ",
                            kMediumText)));
  }
  fmt::format_to(out, "\n{}\n",
                 verdict(outcome.passed(),
                         outcome.passed() ? "all checkpoints pass"
                                          : "a checkpoint failed: look at the first one that did"));
  return text;
}

std::string json_text(const Outcome& outcome) {
  json::Array rungs;
  for (const CheckpointResult& rung : outcome.ladder) {
    rungs.push_back(json::Object{{"number", rung.checkpoint.number},
                                 {"name", rung.checkpoint.name},
                                 {"tolerance", rung.checkpoint.tolerance},
                                 {"max_error", rung.max_error},
                                 {"passed", rung.passed},
                                 {"difference", rung.difference}});
  }
  json::Object object{{"model", outcome.model->file->path().string()},
                      {"architecture", outcome.model->config.architecture},
                      {"variant", outcome.model->config.variant},
                      {"parameters", outcome.model->num_parameters},
                      {"backend", outcome.backend_name},
                      {"passed", outcome.passed()},
                      {"checkpoints", std::move(rungs)},
                      {"ids", json::Array(outcome.ids.begin(), outcome.ids.end())}};
  object["prompt_from"] = outcome.prompt_from;
  object["inputs_rounded"] = outcome.num_rounded;
  object["inputs_taken"] = outcome.num_taken;
  object["outside_reference"] = base::to_valid_utf8(outcome.outside.reference);
  if (outcome.outside.passed) {
    object["outside_passed"] = *outcome.outside.passed;
    object["outside_max_error"] = outcome.outside.max_error;
  }
  if (outcome.mission_text) object["gpt2_medium_text"] = *outcome.mission_text;
  return json::serialize(object) + "\n";
}

}  // namespace

int run_checkpoints(int argc, const char* const* argv, const char* no_color) {
  CLI::App app(
      "Runs the twelve checkpoints on a model: every stage from the first norm to generated ids, "
      "on the chosen\n"
      "backend against a slow reference in double precision. gpt2-medium must also continue "
      "\"Hello.\" as published.",
      std::string(kProgram));
  Options options;
  app.add_option("--model", options.model_path,
                 "a .gguf, .safetensors, .bin or .pt file, or a Hugging Face folder")
      ->required();
  app.add_option("--backend", options.backend, "cpu, cuda:N or reference")->capture_default_str();
  app.add_option("--threads", options.threads, "CPU threads; 0: one per core")
      ->capture_default_str();
  app.add_option(
         "--input", options.input,
         "the form in which the CPU's products take their input: f32, f16, bf16, int8 (block "
         "types alone)")
      ->capture_default_str();
  app.add_flag("--json", options.json, "print one JSON object");
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  const Result<Outcome> outcome = climb(options);
  if (!outcome.ok()) return fail(kProgram, outcome.error().message);
  const int printed = print(
      kProgram, options.json ? json_text(outcome.value())
                             : table_text(outcome.value(), base::wants_color(stdout, no_color)));
  if (printed != 0) return printed;
  return outcome->passed() ? 0 : kFailure;
}

}  // namespace llorch::tools
