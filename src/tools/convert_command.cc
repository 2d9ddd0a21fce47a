#include "tools/convert_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "base/terminal.h"
#include "base/whole_number.h"
#include "tools/command_line.h"
#include "tools/convert.h"
#include "tools/random_model.h"
#include "tools/weight_types.h"

namespace llorch::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProgram = "llorch-convert";
constexpr int kThreadsMax = 256;

constexpr const char* kFooter = R"(Types:
  f32 f16 bf16            as exact as the original, or nearly
  q8_0                    8.5 bits per weight, hard to tell from the original
  q6_k q5_k q4_k          6.6, 5.5 and 4.5 bits; the output matrix stays q6_k
  q5_k_m q4_k_m           the same with more bits where they matter: the usual choice
  q5_1 q5_0 q4_1 q4_0     older, simpler blocks of 32
Norms and biases stay f32. Rows that are not whole blocks get the next type that fits.

Examples:
  llorch-convert models/TinyLlama tinyllama-q4_k_m.gguf --type q4_k_m
  llorch-convert model.safetensors model-f16.gguf --type f16
  llorch-convert model-f16.gguf model-q8_0.gguf --type q8_0 --threads 8 --json
  llorch-convert --random qwen2.5-0.5b random.gguf --type q4_k_m --tokenizer models/Qwen

Shapes of --random: gpt2 gpt2-medium smollm2-135m qwen2.5-0.5b tinyllama-1.1b
phi-3-mini mistral-7b. Sizes and numbers are those of the real ones, so they are as large
and as fast, and of no use otherwise.

--json prints one object: input, output, type, tensors, weights, bytes_before,
bytes_after, bits_per_weight, types [{type, tensors, weights, bytes}], notes,
seconds.

Exit code: 0 when OUT was written; 1 when it was not (what was there before is
untouched); 2 for a mistake on the command line.)";

struct Options {
  std::string input, output, type, random, tokenizer;
  std::uint32_t seed = 0;
  int threads = 0;
  bool json = false;
  bool force = false;
  bool without_tokenizer = false;
};

Status check_output(const Options& options) {
  std::error_code error;
  if (fs::is_directory(options.output, error)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is a folder; name the file to write", options.output)};
  }
  if (!fs::exists(options.output, error)) return ok_status();
  if (fs::equivalent(options.input, options.output, error)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is the input; write to another file", options.output)};
  }
  if (options.force) return ok_status();
  return Error{ErrorCode::Conflict,
               fmt::format("{} exists; pass --force to replace it", options.output)};
}

Result<RandomModel> random_model(const Options& options) {
  const ModelShape* shape = find_model_shape(options.random);
  if (shape == nullptr) {
    return Error{ErrorCode::InvalidArgument, fmt::format("there is no shape {}; --help lists them",
                                                         base::printable(options.random))};
  }
  return RandomModel{.shape = *shape,
                     .type = find_weight_type(options.type),
                     .seed = options.seed,
                     .tokenizer = options.tokenizer};
}

// With --random there is no IN, and what stands first is OUT.
int make_random(Options options) {
  if (!options.output.empty())
    return fail(kProgram, "--random takes no IN: llorch-convert --random SHAPE OUT", kUsage);
  options.output = options.input;
  options.input.clear();
  const Result<RandomModel> wanted = random_model(options);
  if (!wanted.ok()) return fail(kProgram, wanted.error().message, kUsage);
  Status written = check_output(options);
  if (written.ok()) written = write_random_model(*wanted, options.output);
  if (!written.ok()) return fail(kProgram, written.error().message);
  if (!options.json) return print(kProgram, base::printable(options.output) + "\n");
  return print(kProgram, json::serialize(json::Object{{"output", options.output},
                                                      {"shape", options.random},
                                                      {"type", options.type},
                                                      {"seed", options.seed}}) +
                             "\n");
}

int choose_threads(int wanted) {
  if (wanted > 0) return std::min(wanted, kThreadsMax);
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
}

struct Outcome {
  ConversionPlan plan;
  double seconds = 0;
};

Result<Outcome> convert(const Options& options) {
  if (Status sound = check_output(options); !sound.ok()) return sound.error();
  const auto begin = std::chrono::steady_clock::now();
  PlanRequest request;
  request.input = options.input;
  request.output = options.output;
  request.type = find_weight_type(options.type);
  request.without_tokenizer = options.without_tokenizer;
  Result<ConversionPlan> plan = plan_conversion(request);
  if (!plan.ok()) return plan.error();
  base::StatusLine line(stderr);
  const ConvertProgress progress = [&](std::int64_t done, std::int64_t all,
                                       std::string_view tensor) {
    const double fraction =
        static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(all, 1));
    line.show(fmt::format("{} {:3.0f} %  {}", base::progress_bar(fraction, 30), 100 * fraction,
                          tensor.substr(0, 36)));
  };
  Status written =
      write_conversion(plan.value(), options.output, choose_threads(options.threads), progress);
  line.clear();
  if (!written.ok()) return written.error();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return Outcome{plan.take(), seconds.count()};
}

int report(const Options& options, const Outcome& outcome, const char* no_color) {
  if (options.json) {
    json::Object object{
        {"input", options.input}, {"output", options.output}, {"type", options.type}};
    for (auto& entry : summary_json(outcome.plan)) object[entry.key()] = entry.value();
    object["seconds"] = outcome.seconds;
    return print(kProgram, json::serialize(object) + "\n");
  }
  const bool color = base::wants_color(stdout, no_color);
  std::string text =
      fmt::format("{}\n", base::paint(base::printable(options.output), base::Color::Bold, color));
  text += summary_text(outcome.plan, color);
  for (const std::string& note : outcome.plan.notes)
    text += "  note: " + base::wrap(base::printable(note), 80, 8) + "\n";
  text += fmt::format("  {:.1f} s\n", outcome.seconds);
  return print(kProgram, text);
}

void describe(CLI::App& app, Options& options) {
  app.add_option("IN", options.input,
                 "a Hugging Face folder, a .safetensors, PyTorch or\n.gguf file")
      ->required()
      ->type_name("PATH");
  app.add_option("OUT", options.output, "the GGUF file to write")->type_name("PATH");
  app.add_option("--type", options.type, "the type of the weights, see below")
      ->required()
      ->type_name("TYPE")
      ->check([](const std::string& name) {
        return find_weight_type(name) != nullptr
                   ? std::string()
                   : "unknown type " + base::printable(name) + "; --help lists them";
      });
  app.add_option("--threads", options.threads, "0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, kThreadsMax));
  app.add_flag("--force", options.force, "replace OUT if it exists");
  app.add_flag("--no-tokenizer", options.without_tokenizer,
               "write the weights alone, for llorch-checkpoints and\nother readers of ids: no "
               "worker starts on such a file");
  app.add_option("--random", options.random,
                 "write a model of this shape with random weights;\nthere is no IN then")
      ->type_name("SHAPE");
  app.add_option("--seed", options.seed, "other weights, with --random")
      ->capture_default_str()
      ->check(base::check_whole_number);
  app.add_option("--tokenizer", options.tokenizer,
                 "the folder or .gguf whose tokenizer it gets, with\n--random; no worker starts "
                 "without one")
      ->type_name("PATH");
  app.add_flag("--json", options.json, "print one JSON object");
}

}  // namespace

int run_convert(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Writes a model as a GGUF file, quantised, with its tokenizer and chat template.",
               std::string(kProgram));
  Options options;
  describe(app, options);
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  if (!options.random.empty()) return make_random(options);
  if (options.output.empty()) return fail(kProgram, "OUT is required", kUsage);
  if (!options.tokenizer.empty())
    return fail(kProgram, "--tokenizer goes with --random; a model keeps its own", kUsage);
  const Result<Outcome> outcome = convert(options);
  if (!outcome.ok()) {
    return fail(kProgram, outcome.error().message);
  }
  return report(options, outcome.value(), no_color);
}

}  // namespace llorch::tools
