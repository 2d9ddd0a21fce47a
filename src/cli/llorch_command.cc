#include "cli/llorch_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/settings.h"
#include "base/terminal.h"
#include "base/version.h"
#include "cli/ask_flags.h"
#include "cli/chat_command.h"
#include "cli/completion.h"
#include "cli/fleet_command.h"
#include "cli/manual.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "cli/run_command.h"
#include "cli/worker_flags.h"
#include "contract/limits.h"

namespace llorch::cli {
namespace {

constexpr std::int32_t kMaxTokens = 400;

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

Where an orchestrator runs (`llorch up`) the prompt is a job of the fleet, and -m any
model that one of its hosts has; --local, files and --threads mean a worker of this
command's own, as everywhere else.

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
  llorch chat -m tinyllama --local           not the fleet, though it runs
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
  llorch up                                    the orchestrator and this host's pool
  llorch jobs submit --model builtin --prompt "Once upon a time"
  llorch status

llorch COMMAND --help shows a command's options and examples.
Models and workers of this host: llorch-pool --help.)";

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
    if (std::string_view(argv[i]) == "--pool" &&
        (next.starts_with("http://") || next.starts_with("https://"))) {
      words.push_back(fmt::format("--pool={}", next));
      ++i;
    } else {
      words.emplace_back(argv[i]);
    }
  }
  return words;
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
  Result<std::optional<FleetTarget>> fleet = find_fleet(worker, environment);
  if (!fleet.ok()) return fail(fleet.error());
  options.fleet = fleet.take();
  if (options.fleet) {
    options.worker = worker.choice;
    return 0;
  }
  Result<WorkerChoice> choice = find_choice(worker, environment);
  if (!choice.ok()) return fail(choice.error());
  options.worker = choice.take();
  return 0;
}

int run_run(RunArguments& arguments, const base::Environment& environment) {
  RunOptions& options = arguments.options;
  Result<std::string> prompt = find_prompt(arguments.words, "llorch run \"Once upon a time\"");
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
  FleetContext fleet;
  fleet.environment = environment;
  add_up_commands(app, fleet);
  add_status_commands(app, fleet);
  add_jobs_commands(app, fleet);
  add_keys_commands(app, fleet);
  add_hosts_commands(app, fleet);
  add_backup_commands(app, fleet);
  add_ca_command(app, fleet);
  add_audit_commands(app, fleet);
  add_top_command(app, fleet);
  add_bench_command(app, fleet);
  add_matrix_command(app, fleet);
  add_doctor_command(app, fleet);
  const auto choose_unprepared = [&fleet](std::function<int()> print) {
    fleet.runs_unprepared = true;
    fleet.chosen = std::move(print);
  };
  add_completion_command(app, fleet.json_output, choose_unprepared)
      ->add_flag("--json", fleet.json_output, "print JSON for programs");
  add_manual_command(app, choose_unprepared);
  if (const auto ended = parse_words(app, join_pool_url(argc, argv))) return *ended;
  if (fleet.chosen) {
    const Status completed = complete(fleet);
    return completed.ok() || fleet.runs_unprepared ? fleet.chosen() : fail(completed.error());
  }
  if (const Status config = base::check_config(environment); !config.ok())
    return fail(config.error());
  if (chat.parsed()) return run_chat(chat_arguments, environment);
  return run_run(run_arguments, environment);
}

}  // namespace llorch::cli
