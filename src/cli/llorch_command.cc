#include "cli/llorch_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "base/version.h"
#include "cli/output.h"
#include "cli/run_command.h"
#include "contract/limits.h"

namespace llorch::cli {
namespace {

// What suits stories and chat alike; the worker's own default is the plain distribution.
constexpr float kTemperature = 0.7F;
constexpr float kTopP = 0.95F;
constexpr std::int32_t kMaxTokens = 400;
constexpr std::string_view kOwnPool = "own";
constexpr std::size_t kPromptBytesMax = contract::kPromptScalarsMax * 4;

constexpr const char* kRunFooter = R"(Examples:
  llorch run "Once upon a time"
  llorch run -m ~/models/llama-3.2-1b.gguf -n 100 "The capital of France is"
  echo "There was once a king who" | llorch run --temp 0.9 --seed 7
  llorch run --json "Once upon a time" | jq -r .text
  llorch run --pool -m tinyllama "The capital of France is"

Without PROMPT it is read from standard input. The words of PROMPT may stand
unquoted. On a terminal the prompt is repeated before the text, and the number of
tokens per second follows it.

--json prints one object at the end:
  model, prompt, text, stop_reason (max_tokens, eos, stop_sequence), seed,
  prompt_tokens, tokens_out, load_ms, prefill_ms, ttft_ms, decode_time_ms,
  tokens_per_second

Exit code: 0; 1 when something failed; 2 for a mistake on the command line;
130 after Ctrl-C.)";

// A number between the two; CLI11's own range lets "nan" through.
CLI::Validator number_between(double min, double max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        double number = 0;
        const char* end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc() && at == end && number >= min && number <= max) {
          return std::string();
        }
        return fmt::format("expected a number from {} to {}, found {}", min, max,
                           base::quoted(text));
      },
      fmt::format("{}..{}", min, max));
}

std::filesystem::path worker_beside_us() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path() : self.parent_path()) / "llorch-cpud";
}

Result<std::string> read_standard_input() {
  if (::isatty(STDIN_FILENO) != 0) {
    return Error{ErrorCode::InvalidArgument,
                 "no prompt: name one (llorch run \"Once upon a time\") or send it through a pipe"};
  }
  std::string text;
  std::vector<char> buffer(std::size_t{64} << 10);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer.data(), got);
    if (text.size() > kPromptBytesMax) break;  // refused below
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> find_prompt(const std::vector<std::string>& words) {
  std::string prompt = fmt::format("{}", fmt::join(words, " "));
  if (words.empty() || prompt == "-") {
    Result<std::string> read = read_standard_input();
    if (!read.ok()) return read;
    prompt = read.take();
  }
  if (prompt.empty()) return Error{ErrorCode::InvalidArgument, "the prompt is empty"};
  if (!base::is_valid_utf8(prompt)) {
    return Error{ErrorCode::InvalidArgument, "the prompt is not UTF-8 text; convert it first"};
  }
  if (const std::size_t scalars = base::count_scalars(prompt);
      scalars > contract::kPromptScalarsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the prompt has {} characters or more, at most {} are possible",
                             scalars, contract::kPromptScalarsMax)};
  }
  return prompt;
}

// What the parser fills.
struct RunArguments {
  RunOptions options;
  std::vector<std::string> words;
  std::string worker;
  std::string pool;  // empty: a worker of our own; kOwnPool or a URL
  std::int32_t max_tokens = kMaxTokens;
};

void add_sampling_flags(CLI::App& run, RunArguments& arguments) {
  contract::SamplingConfig& sampling = arguments.options.sampling;
  sampling.temperature = kTemperature;
  sampling.top_p = kTopP;
  run.add_option("--temp", sampling.temperature, "0: always the most probable token (0.7)")
      ->type_name("T")
      ->check(number_between(0, contract::kTemperatureMax).description(""));
  run.add_option("--top-p", sampling.top_p, "of the probability, the tokens that hold P (0.95)")
      ->type_name("P")
      ->check(number_between(0, 1).description(""));
  run.add_option("--top-k", sampling.top_k, "only the K most probable tokens; 0: off (0)")
      ->type_name("K")
      ->check(
          CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()).description(""));
  run.add_option("--min-p", sampling.min_p, "none below P times the most probable (0)")
      ->type_name("P")
      ->check(number_between(0, 1).description(""));
  run.add_option("--repetition-penalty", sampling.repetition_penalty, "above 1: repeat less (1)")
      ->type_name("R")
      ->check(number_between(0.01, contract::kRepetitionPenaltyMax).description(""));
  run.add_option("--stop", sampling.stop, "end before this text; up to 4 times")
      ->type_name("TEXT")
      ->allow_extra_args(false)  // the word behind it is the prompt's
      ->check([](const std::string& text) {
        const bool fits = !text.empty() && text.size() <= contract::kStopBytesMax;
        return fits ? std::string() : std::string("a stop text has 1 to 100 bytes");
      });
  run.add_option("--seed", sampling.seed, "the same seed gives the same text")->type_name("S");
}

void add_run_flags(CLI::App& run, RunArguments& arguments) {
  RunOptions& options = arguments.options;
  run.add_option("PROMPT", arguments.words, "what the text begins with")->type_name("");
  run.add_option("-m,--model", options.model,
                 "a .gguf, .safetensors or PyTorch file, a folder in\nHugging Face layout, or "
                 "builtin (the default)")
      ->type_name("PATH");
  run.add_option("-n,--max-tokens", arguments.max_tokens, "at most N tokens (400)")
      ->type_name("N")
      ->check(CLI::Range(1, contract::kMaxTokensMax).description(""));
  add_sampling_flags(run, arguments);
  run.add_option("--threads", options.threads, "threads of the worker")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  run.add_option("--ctx", options.context, "context length, at most the model's")
      ->type_name("N")
      ->check(CLI::Range(1, std::numeric_limits<std::int32_t>::max()).description(""));
  run.add_option("--worker", arguments.worker, "the worker's program (llorch-cpud beside llorch)")
      ->type_name("PATH");
  run.add_flag("--pool{" + std::string(kOwnPool) + "}", arguments.pool,
               "let a worker of this host's pool answer, or of the pool at\n--pool=URL; -m is then "
               "an ID of its catalog, and the worker\nstays")
      ->type_name("URL");
  run.add_option("--backend", options.backend,
                 "of a worker that the pool starts: cpu (default), cuda")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""));
  run.add_flag("--json", options.json_output, "print one JSON object instead of the text");
  run.add_flag("-v,--verbose", options.verbose, "print the numbers also without a terminal");
  run.footer(kRunFooter);
}

// "--pool URL" as "--pool=URL": a flag may have a value behind '=' only, and the word behind
// --pool may be the prompt's.
std::vector<std::string> join_pool_url(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
    if (std::string_view(argv[i]) == "--pool" && next.starts_with("http://")) {
      words.push_back(fmt::format("--pool={}", next));
      ++i;
    } else {
      words.emplace_back(argv[i]);
    }
  }
  return words;
}

// The pool that --pool, --pool=URL or LLORCH_POOL mean.
Result<PoolTarget> pool_target(const std::string& flag, const base::Environment& environment) {
  const auto text_of = [&environment](const char* name) -> std::string {
    const char* value = environment(name);
    return value != nullptr ? value : "";
  };
  const Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) return home.error();
  PoolTarget target{environment, *home, flag, text_of("LLORCH_TOKEN")};
  if (flag == kOwnPool) target.url = text_of("LLORCH_POOL");
  return target;
}

int run_run(RunArguments& arguments, const base::Environment& environment) {
  if (arguments.options.sampling.stop.size() > contract::kStopStringsMax) {
    complain(fmt::format("--stop was given {} times, at most {} are possible",
                         arguments.options.sampling.stop.size(), contract::kStopStringsMax));
    return kUsage;
  }
  Result<std::string> prompt = find_prompt(arguments.words);
  if (!prompt.ok()) {
    complain(prompt.error().message);
    return kUsage;
  }
  RunOptions& options = arguments.options;
  options.prompt = prompt.take();
  options.sampling.max_tokens = arguments.max_tokens;
  options.worker =
      arguments.worker.empty() ? worker_beside_us() : std::filesystem::path(arguments.worker);
  options.color = base::wants_color(stdout, environment("NO_COLOR"));
  if (!arguments.pool.empty()) {
    Result<PoolTarget> target = pool_target(arguments.pool, environment);
    if (!target.ok()) {
      complain(target.error().message);
      return kFailure;
    }
    options.pool = target.take();
  }
  return run_prompt(options);
}

}  // namespace

int run_llorch(int argc, const char* const* argv, const base::Environment& environment) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  CLI::App app("Runs language models on every machine you own, as one.", "llorch");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch " + std::string(base::version()), "print the version");
  app.require_subcommand(1);
  app.footer("llorch run --help shows a command's options and examples.");
  RunArguments arguments;
  CLI::App& run = *app.add_subcommand("run", "continue a prompt with a model on this machine");
  run.set_help_flag("-h,--help", "print this help");
  add_run_flags(run, arguments);
  try {
    std::vector<std::string> words = join_pool_url(argc, argv);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;  // help and version also arrive here
  }
  return run_run(arguments, environment);
}

}  // namespace llorch::cli
