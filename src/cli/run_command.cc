#include "cli/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/answer_printer.h"
#include "cli/ask_fleet.h"
#include "cli/output.h"
#include "contract/model_entry.h"

namespace llorch::cli {
namespace {

using pool_client::Answer;
using pool_client::Question;

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) != 0;
}

std::string numbers_text(const Answer& answer, double load_seconds) {
  const contract::InferenceResult& numbers = answer.numbers;
  return fmt::format("{} tokens, {:.1f} tokens/s, first after {:.0f} ms{}; {}; seed {}\n",
                     numbers.tokens_out, tokens_per_second(numbers), numbers.ttft_ms,
                     load_seconds > 0 ? fmt::format("; loaded in {:.1f} s", load_seconds) : "",
                     answer.stop_reason, numbers.seed);
}

json::Object numbers_json(const RunOptions& options, const Answer& answer, double load_seconds) {
  const contract::InferenceResult& result = answer.numbers;
  json::Object object;
  object["model"] = answer.model;
  object["mode"] = answer.is_chat ? "chat" : "raw";
  if (!options.system.empty()) object["system"] = options.system;
  object["prompt"] = options.prompt;
  object["text"] = answer.text;
  if (!answer.reasoning.empty()) object["reasoning"] = answer.reasoning;
  object["stop_reason"] = answer.stop_reason;
  object["seed"] = result.seed;
  object["prompt_tokens"] = result.prompt_tokens;
  object["tokens_out"] = result.tokens_out;
  object["load_ms"] = static_cast<std::int64_t>(load_seconds * 1000);
  object["prefill_ms"] = answer.is_chat ? json::Value(nullptr) : json::Value(result.prefill_ms);
  object["ttft_ms"] = result.ttft_ms;
  object["decode_time_ms"] = result.decode_time_ms;
  object["tokens_per_second"] = tokens_per_second(result);
  return object;
}

// A model with a chat template is asked in its form, unless the text is to go as it is.
Result<Question> make_question(const RunOptions& options, const std::string& uri) {
  Question question{.uri = uri,
                    .prompt = options.prompt,
                    .sampling = options.sampling,
                    .job_id = fmt::format("run-{}", ::getpid())};
  if (options.raw) return question;
  const Result<contract::HealthReport> health = pool_client::read_worker_health(uri);
  if (!health.ok()) return health.error();
  if (!health->chat_template) {
    if (options.system.empty()) return question;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--system needs a model with a chat template, {} has none; put the "
                             "text in front of the prompt",
                             base::quoted(options.worker.model))};
  }
  if (!options.system.empty()) question.messages.push_back({"system", options.system});
  question.messages.push_back({"user", options.prompt});
  return question;
}

// On a terminal the prompt stands in front of what follows from it.
std::string prompt_text(const RunOptions& options) {
  return base::paint(base::printable(options.prompt), base::Color::Bold, options.color);
}

// The numbers, or everything as one object.
Status tell_numbers(const RunOptions& options, const Answer& answer, double load_seconds) {
  const bool print = !options.json_output;
  if (!print && !write_out(json::serialize(numbers_json(options, answer, load_seconds)) + "\n")) {
    return Error{ErrorCode::Internal, "the answer could not be written to standard output"};
  }
  if (print && (options.verbose || is_terminal(STDERR_FILENO))) {
    const bool color = options.color && is_terminal(STDERR_FILENO);
    write_err(base::paint(numbers_text(answer, load_seconds), base::Color::Dim, color));
  }
  return ok_status();
}

// Asks the worker and prints what it says.
Status tell(const RunOptions& options, AnsweringWorker& worker) {
  const bool print = !options.json_output;
  Answer answer;
  const Result<Question> question = make_question(options, worker.uri());
  Status asked = question.ok() ? ok_status() : Status(question.error());
  if (question.ok()) {
    const bool is_shown = print && question->messages.empty() && is_terminal(STDOUT_FILENO);
    if (is_shown) write_out(prompt_text(options));
    asked = ask_and_print(*question, {print, options.color}, {}, answer);
  }
  if (!asked.ok()) {
    const ErrorCode code = asked.error().code;
    const bool may_have_died =
        code == ErrorCode::Unavailable || code == ErrorCode::Internal || code == ErrorCode::Corrupt;
    const std::string why = may_have_died ? worker.obituary() : "";
    if (why.empty()) return asked;
    return Error{asked.error().code, fmt::format("{} ({})", asked.error().message, why)};
  }
  return tell_numbers(options, answer, worker.load_seconds());
}

// The same as a job of the fleet. Which form its model wants is known there alone: the prompt goes
// as a message, and as it is where there is no template.
Status tell_fleet(const RunOptions& options, const FleetClient& client, std::stop_token stop) {
  FleetQuestion question;
  question.options.model = options.worker.model;
  question.question.prompt = options.prompt;
  question.question.sampling = options.sampling;
  PrintOptions print{!options.json_output, options.color};
  // Of the built-in model it is known that it has none.
  const bool is_raw =
      options.raw || (options.worker.model == contract::kBuiltinModel && options.system.empty());
  Answer answer;
  Status asked = ok_status();
  if (!is_raw) {
    if (!options.system.empty()) question.question.messages.push_back({"system", options.system});
    question.question.messages.push_back({"user", options.prompt});
    asked = ask_fleet_and_print(client, question, print, stop, answer);
  }
  const bool has_no_template = !asked.ok() && is_without_template(asked.error());
  if (has_no_template && !options.system.empty()) return asked;
  if (is_raw || has_no_template) {
    question.question.messages.clear();
    print.before = prompt_text(options);  // behind what the job waits for, which is taken away
    asked = ask_fleet_and_print(client, question, std::move(print), std::move(stop), answer);
  }
  return asked.ok() ? tell_numbers(options, answer, 0) : asked;
}

int run_in_fleet(const RunOptions& options) {
  const Result<FleetClient> client = find_orchestrator(*options.fleet);
  if (!client.ok()) return fail(client.error());
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const Status told = tell_fleet(options, *client, stop.get_token());
  if (watch.interrupted()) return kInterrupted;
  return told.ok() ? 0 : fail(told.error());
}

}  // namespace

int run_prompt(const RunOptions& options) {
  if (options.fleet) return run_in_fleet(options);
  Status told = ok_status();
  bool was_interrupted = false;
  {
    AnsweringWorker worker(options.worker);
    // With a pool's worker a stream may be silent for long: Ctrl-C ends the process, and with its
    // connection the worker's work.
    const base::InterruptWatch watch([&worker] {
      if (worker.choice().pool) std::_Exit(kInterrupted);
      worker.interrupt();
    });
    told = worker.start();
    if (told.ok()) told = tell(options, worker);
    was_interrupted = watch.interrupted();
  }
  if (was_interrupted) return kInterrupted;
  if (told.ok()) return 0;
  return fail(told.error());
}

}  // namespace llorch::cli
