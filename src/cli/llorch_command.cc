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
#include "base/own_program.h"
#include "base/result.h"
#include "base/settings.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "base/version.h"
#include "catalog/model_catalog.h"
#include "cli/chat_command.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "cli/run_command.h"
#include "contract/backend_kind.h"
#include "contract/limits.h"
#include "contract/model_entry.h"

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
  llorch run -m ~/models/llama-3.2-1b-instruct.gguf "What is the capital of France?"
  llorch run -m chat.gguf --system "Answer like a pirate." "Who are you?"
  llorch run -m chat.gguf --raw "The capital of France is"
  echo "There was once a king who" | llorch run --temp 0.9 --seed 7
  llorch run --json "Once upon a time" | jq -r .text
  llorch run --pool -m tinyllama "The capital of France is"

A model with a chat template answers the prompt as a message; --raw lets it
continue the text instead, as a model without a template always does.

Without PROMPT it is read from standard input. The words of PROMPT may stand
unquoted. On a terminal a text that is continued is repeated before what follows,
and the number of tokens per second comes last.

--json prints one object at the end:
  model, mode (chat, raw), system (with --system), prompt, text, reasoning (when
  there is some), stop_reason (max_tokens, eos, stop_sequence; of a chat with
  --stop: stop), seed, prompt_tokens, tokens_out, load_ms, prefill_ms (null of a
  chat), ttft_ms, decode_time_ms, tokens_per_second

Exit code: 0; 1 when something failed; 2 for a mistake on the command line;
130 after Ctrl-C.)";

constexpr const char* kChatFooter = R"(Examples:
  llorch chat -m ~/models/llama-3.2-1b-instruct.gguf
  llorch chat -m tinyllama --system "Answer in one sentence."
  llorch chat --pool -m tinyllama
  printf 'Hello\nAnd goodbye\n' | llorch chat -m tinyllama

Every line is a message; one that ends in \ goes on in the next line, and so does
everything from """ to """. A pasted text is one message. Lines that begin with /
are commands: /help shows them.

Ctrl-C stops an answer; twice at the prompt it ends the program (130), and so does
Ctrl-D (0). Through a pipe there are answers on standard output and nothing else.

--json prints one object for each answer: text, reasoning, model, stop_reason, seed,
prompt_tokens, tokens_out, ttft_ms, tokens_per_second.)";

constexpr const char* kFooter = R"(Examples:
  llorch run "Once upon a time"
  llorch chat -m ~/models/llama-3.2-1b-instruct.gguf

llorch COMMAND --help shows a command's options and examples.
Models and workers of this host: llorch-pool --help.)";

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

// What the parser fills for every command that asks a worker.
struct WorkerArguments {
  WorkerChoice choice;
  std::string worker;
  std::string pool;  // empty: a worker of our own; kOwnPool or a URL
};

struct RunArguments {
  WorkerArguments worker;
  RunOptions options;
  std::vector<std::string> words;
  std::int32_t max_tokens = kMaxTokens;
};

struct ChatArguments {
  WorkerArguments worker;
  ChatOptions options;
};

void add_sampling_flags(CLI::App& run, contract::SamplingConfig& sampling) {
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

void add_worker_flags(CLI::App& run, WorkerArguments& arguments) {
  WorkerChoice& choice = arguments.choice;
  run.add_option(
         "-m,--model", choice.model,
         "a .gguf, .safetensors or PyTorch file, a folder in\nHugging Face layout, a name of "
         "the catalog, or builtin\n(the default)")
      ->type_name("MODEL");
  run.add_option("--threads", choice.threads, "threads of the worker")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  run.add_option("--ctx", choice.context, "context length, at most the model's")
      ->type_name("N")
      ->check(CLI::Range(1, std::numeric_limits<std::int32_t>::max()).description(""));
  run.add_option("--worker", arguments.worker, "the worker's program (llorch-cpud beside llorch)")
      ->type_name("PATH");
  run.add_flag("--pool{" + std::string(kOwnPool) + "}", arguments.pool,
               "let a worker of this host's pool answer, or of the pool at\n--pool=URL; -m is then "
               "an ID of its catalog, and the worker\nstays")
      ->type_name("URL");
  run.add_option("--backend", choice.backend,
                 "of a worker that the pool starts: cpu (default), cuda")
      ->type_name("NAME")
      ->check(CLI::IsMember(contract::backend_names()).description(""));
}

void add_system_flag(CLI::App& run, std::string& system) {
  run.add_option("--system", system, "what a chat model is told first")
      ->type_name("TEXT")
      ->check([](const std::string& text) {
        return base::is_valid_utf8(text) ? std::string() : std::string("is not UTF-8 text");
      });
}

void add_run_flags(CLI::App& run, RunArguments& arguments) {
  RunOptions& options = arguments.options;
  run.add_option("PROMPT", arguments.words, "what the text begins with")->type_name("");
  run.add_option("-n,--max-tokens", arguments.max_tokens, "at most N tokens (400)")
      ->type_name("N")
      ->check(CLI::Range(1, contract::kMaxTokensMax).description(""));
  add_system_flag(run, options.system);
  run.add_flag("--raw", options.raw, "continue the text as it is, without a chat template");
  add_sampling_flags(run, options.sampling);
  add_worker_flags(run, arguments.worker);
  run.add_flag("--json", options.json_output, "print one JSON object instead of the text");
  run.add_flag("-v,--verbose", options.verbose, "print the numbers also without a terminal");
  run.footer(kRunFooter);
}

void add_chat_flags(CLI::App& chat, ChatArguments& arguments) {
  ChatOptions& options = arguments.options;
  chat.add_option("-n,--max-tokens", options.sampling.max_tokens,
                  "at most N tokens in an answer (what the context holds)")
      ->type_name("N")
      ->check(CLI::Range(1, contract::kMaxTokensMax).description(""));
  add_system_flag(chat, options.system);
  add_sampling_flags(chat, options.sampling);
  add_worker_flags(chat, arguments.worker);
  chat.add_flag("--json", options.json_output, "print one JSON object for each answer");
  chat.footer(kChatFooter);
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

// What a worker of our own loads: a path as it is, else the files of that name in the catalog.
Result<std::string> find_model_files(const std::string& model,
                                     const base::Environment& environment) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored) || model.find('/') != std::string::npos) return model;
  const Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) return model;
  const Result<contract::ModelEntry> entry =
      catalog::ModelCatalog(home->catalog_file()).find(model);
  if (!entry.ok()) {
    return Error{entry.error().code,
                 fmt::format("{} is no file, and {}", base::quoted(model), entry.error().message)};
  }
  if (entry->id == contract::kBuiltinModel) return model;
  if (!entry->downloaded) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("{} is in the catalog, but its files are not here: `llorch-pool models "
                    "download {}` fetches them",
                    model, model)};
  }
  return entry->path;
}

// Which worker it is, once everything is parsed.
Result<WorkerChoice> find_choice(const WorkerArguments& arguments,
                                 const base::Environment& environment) {
  WorkerChoice choice = arguments.choice;
  choice.worker = arguments.worker.empty()
                      ? base::own_folder() / contract::find_backend_kind(contract::kCpu)->program
                      : std::filesystem::path(arguments.worker);
  if (!arguments.pool.empty()) {
    Result<PoolTarget> target = pool_target(arguments.pool, environment);
    if (!target.ok()) return target.error();
    choice.pool = target.take();
  } else if (arguments.worker.empty()) {  // a program that the user names knows its own models
    Result<std::string> files = find_model_files(choice.model, environment);
    if (!files.ok()) return files.error();
    choice.model = files.take();
  }
  return choice;
}

// What `llorch run` and `llorch chat` settle alike once everything is parsed; 0, or the code to
// leave with.
template <class Options>
int settle(const WorkerArguments& worker, const base::Environment& environment, Options& options) {
  if (options.sampling.stop.size() > contract::kStopStringsMax) {
    complain(fmt::format("--stop was given {} times, at most {} are possible",
                         options.sampling.stop.size(), contract::kStopStringsMax));
    return kUsage;
  }
  options.color = base::wants_color(stdout, environment("NO_COLOR"));
  Result<WorkerChoice> choice = find_choice(worker, environment);
  if (!choice.ok()) return fail(choice.error());
  options.worker = choice.take();
  return 0;
}

int run_run(RunArguments& arguments, const base::Environment& environment) {
  RunOptions& options = arguments.options;
  Result<std::string> prompt = find_prompt(arguments.words);
  if (!prompt.ok()) {
    complain(prompt.error().message);
    return kUsage;
  }
  options.prompt = prompt.take();
  options.sampling.max_tokens = arguments.max_tokens;
  if (const int code = settle(arguments.worker, environment, options); code != 0) return code;
  return run_prompt(options);
}

int run_chat(ChatArguments& arguments, const base::Environment& environment) {
  if (const int code = settle(arguments.worker, environment, arguments.options); code != 0)
    return code;
  return run_chat(arguments.options);
}

}  // namespace

int run_llorch(int argc, const char* const* argv, const base::Environment& environment) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  CLI::App app("Runs language models on every machine you own, as one.", "llorch");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch " + std::string(base::version()), "print the version");
  app.require_subcommand(1);
  app.footer(kFooter);
  RunArguments run_arguments;
  CLI::App& run = *app.add_subcommand("run", "ask a model once, or let it continue a text");
  run.set_help_flag("-h,--help", "print this help");
  add_run_flags(run, run_arguments);
  ChatArguments chat_arguments;
  CLI::App& chat = *app.add_subcommand("chat", "a conversation with a model");
  chat.set_help_flag("-h,--help", "print this help");
  add_chat_flags(chat, chat_arguments);
  if (const auto ended = parse_words(app, join_pool_url(argc, argv))) return *ended;
  if (const Status config = base::check_config(environment); !config.ok())
    return fail(config.error());
  if (chat.parsed()) return run_chat(chat_arguments, environment);
  return run_run(run_arguments, environment);
}

}  // namespace llorch::cli
