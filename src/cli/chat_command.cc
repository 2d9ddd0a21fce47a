#include "cli/chat_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/answer_printer.h"
#include "cli/ask_fleet.h"
#include "cli/chat_session.h"
#include "cli/line_editor.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr std::string_view kQuotes = R"(""")";

// Where Ctrl-C goes: to the worker that starts, to the answer that comes, or to the prompt.
class SignalDesk {
 public:
  SignalDesk(AnsweringWorker& worker, LineEditor& editor) : worker_(worker), editor_(editor) {}

  // On the thread of signals.
  void take(int signal) {
    const base::MutexLock lock(mutex_);
    if (signal != SIGINT) has_to_end_ = true;
    if (is_starting_) worker_.interrupt();
    if (answer_ != nullptr) answer_->request_stop();
    if (!is_starting_ && (answer_ == nullptr || has_to_end_)) editor_.interrupt();
  }

  void started() {
    const base::MutexLock lock(mutex_);
    is_starting_ = false;
  }
  void set_answer(std::stop_source* answer) {
    const base::MutexLock lock(mutex_);
    answer_ = answer;
    if (answer_ != nullptr && has_to_end_) answer_->request_stop();
  }
  bool has_to_end() const {
    const base::MutexLock lock(mutex_);
    return has_to_end_;
  }

 private:
  AnsweringWorker& worker_;
  LineEditor& editor_;
  mutable base::Mutex mutex_;
  bool is_starting_ LLORCH_GUARDED_BY(mutex_) = true;
  bool has_to_end_ LLORCH_GUARDED_BY(mutex_) = false;  // SIGTERM, SIGHUP
  std::stop_source* answer_ LLORCH_GUARDED_BY(mutex_) = nullptr;
};

// Who answers: a worker, or the fleet.
struct ChatPeer {
  std::function<Status()> check;  // whether it can be talked to
  std::function<Status(const pool_client::Question& question, std::stop_token stop,
                       pool_client::Answer& answer)>
      ask;                                // prints the answer as it comes
  std::function<std::string()> obituary;  // why there is nobody left to ask; empty: there is
};

Error no_template(const std::string& model) {
  return {ErrorCode::InvalidArgument,
          fmt::format("{} has no chat template, so it cannot be talked to; `llorch run -m {} TEXT` "
                      "continues a text",
                      base::quoted(model), model)};
}

ChatPeer worker_peer(const ChatOptions& options, AnsweringWorker& worker) {
  const PrintOptions print{!options.json_output, options.color};
  return {.check = [&options, &worker]() -> Status {
            const Result<contract::HealthReport> health =
                pool_client::read_worker_health(worker.uri());
            if (!health.ok()) return health.error();
            return health->chat_template ? ok_status() : no_template(options.worker.model);
          },
          .ask =
              [print, &worker](pool_client::Question question, std::stop_token stop,
                               pool_client::Answer& answer) {
                question.uri = worker.uri();
                return ask_and_print(question, print, std::move(stop), answer);
              },
          .obituary = [&worker] { return worker.obituary(); }};
}

ChatPeer fleet_peer(const ChatOptions& options, const FleetClient& client) {
  const PrintOptions print{!options.json_output, options.color};
  const std::string model = options.worker.model;
  return {
      .check = [] { return ok_status(); },  // the first answer says it
      .ask = [print, model, &client](const pool_client::Question& question, std::stop_token stop,
                                     pool_client::Answer& answer) -> Status {
        FleetQuestion asked{.question = question, .options = {}};
        asked.options.model = model;
        Status done = ask_fleet_and_print(client, asked, print, std::move(stop), answer);
        if (!done.ok() && is_without_template(done.error())) return no_template(model);
        return done;
      },
      .obituary = [] { return std::string(); }};
}

class Chat {
 public:
  Chat(const ChatOptions& options, ChatPeer peer, LineEditor& editor, SignalDesk& desk)
      : options_(options),
        peer_(std::move(peer)),
        editor_(editor),
        desk_(desk),
        session_(options.system, options.sampling) {}

  int run() {
    if (Status can = peer_.check(); !can.ok()) return fail(can.error());
    if (editor_.is_terminal())
      say("Ctrl-D ends, Ctrl-C stops an answer, /help shows the commands.\n");
    for (;;) {
      std::string message;
      const LineEditor::Outcome outcome = read_message(message);
      if (desk_.has_to_end()) return kInterrupted;
      if (outcome == LineEditor::Outcome::End) return exit_code_;
      if (outcome == LineEditor::Outcome::Interrupted) {
        if (!editor_.is_terminal() || std::exchange(was_interrupted_, true)) return kInterrupted;
        say("Ctrl-C again ends, and so does Ctrl-D.\n");
        continue;
      }
      was_interrupted_ = false;
      if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
      editor_.remember(message);
      if (!take(std::move(message))) return exit_code_;
    }
  }

 private:
  // A line, those that a \ at their end joins, or everything between two """.
  LineEditor::Outcome read_message(std::string& message) {
    LineEditor::Outcome outcome = editor_.read(">>> ", message);
    if (outcome != LineEditor::Outcome::Line) return outcome;
    std::string line;
    if (message.starts_with(kQuotes)) {
      message.erase(0, kQuotes.size());
      while (message.find(kQuotes) == std::string::npos) {
        outcome = editor_.read("... ", line);
        if (outcome == LineEditor::Outcome::Interrupted) return outcome;
        if (outcome == LineEditor::Outcome::End) return LineEditor::Outcome::Line;
        message += "\n" + line;
      }
      message.resize(message.find(kQuotes));
      if (message.starts_with('\n')) message.erase(0, 1);
      if (message.ends_with('\n')) message.pop_back();
      return LineEditor::Outcome::Line;
    }
    while (message.ends_with('\\')) {
      message.pop_back();
      outcome = editor_.read("... ", line);
      if (outcome == LineEditor::Outcome::Interrupted) return outcome;
      if (outcome == LineEditor::Outcome::End) break;
      message += "\n" + line;
    }
    return LineEditor::Outcome::Line;
  }

  // False when the conversation is over.
  bool take(std::string message) {
    if (!base::is_valid_utf8(message)) {
      tell_failure({ErrorCode::InvalidArgument, "that is not UTF-8 text"});
      return true;
    }
    if (!message.starts_with('/')) {
      session_.add_user(std::move(message));
      return answer();
    }
    const Result<ChatSession::Effect> effect = session_.run_command(message);
    if (!effect.ok()) {
      tell_failure(effect.error());
      return true;
    }
    if (!effect->text.empty()) say(effect->text);
    if (effect->kind == ChatSession::Effect::Kind::Exit) return false;
    return effect->kind != ChatSession::Effect::Kind::Ask || answer();
  }

  bool answer() {
    std::stop_source stop;
    desk_.set_answer(&stop);
    const pool_client::Question question{.messages = session_.messages(),
                                         .sampling = session_.sampling()};
    pool_client::Answer answer;
    const Status asked = peer_.ask(question, stop.get_token(), answer);
    desk_.set_answer(nullptr);
    const bool was_stopped = !asked.ok() && stop.stop_requested();
    if (!asked.ok() && !was_stopped) return explain(asked.error());
    if (was_stopped && answer.text.empty())
      session_.drop_question();
    else
      session_.add_answer(answer.text);
    if (was_stopped) say("(stopped)\n");
    if (options_.json_output) {
      const json::Object object{{"text", answer.text},
                                {"reasoning", answer.reasoning},
                                {"model", answer.model},
                                {"stop_reason", was_stopped ? "cancelled" : answer.stop_reason},
                                {"seed", answer.numbers.seed},
                                {"prompt_tokens", answer.numbers.prompt_tokens},
                                {"tokens_out", answer.numbers.tokens_out},
                                {"ttft_ms", answer.numbers.ttft_ms},
                                {"tokens_per_second", tokens_per_second(answer.numbers)}};
      return write_out(json::serialize(object) + "\n");
    }
    if (answer.stop_reason == "max_tokens")
      say("(the answer is cut off: the context is full, or max_tokens was reached)\n");
    return true;
  }

  // False when there is nobody left to ask.
  bool explain(const Error& error) {
    session_.drop_question();
    if (pool_client::is_context_overflow(error)) {
      tell_failure(
          {error.code, fmt::format("the conversation no longer fits into the model's context ({}); "
                                   "/clear begins a new one",
                                   error.message)});
      return true;
    }
    if (is_without_template(error)) {  // no other question has a better answer
      tell_failure(error);
      exit_code_ = kFailure;
      return false;
    }
    const std::string why = peer_.obituary();
    tell_failure(why.empty() ? error
                             : Error{error.code, fmt::format("{} ({})", error.message, why)});
    return why.empty();
  }

  // What is no answer: dimmed on a terminal, else not among the answers.
  void say(std::string_view text) const {
    if (editor_.is_terminal())
      write_out(base::paint(text, base::Color::Dim, options_.color));
    else
      write_err(text);
  }

  void tell_failure(const Error& error) {
    complain_lines(error.message);
    if (!editor_.is_terminal()) exit_code_ = kFailure;
  }

  const ChatOptions& options_;
  const ChatPeer peer_;
  LineEditor& editor_;
  SignalDesk& desk_;
  ChatSession session_;
  bool was_interrupted_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_chat(const ChatOptions& options) {
  LineEditor editor;
  AnsweringWorker worker(options.worker);
  SignalDesk desk(worker, editor);
  const base::InterruptWatch watch([&desk](int signal) { desk.take(signal); });
  if (options.fleet) {
    const Result<FleetClient> client = find_orchestrator(*options.fleet);
    if (!client.ok()) return fail(client.error());
    desk.started();
    return Chat(options, fleet_peer(options, *client), editor, desk).run();
  }
  if (Status started = worker.start(); !started.ok()) {
    if (watch.interrupted()) return kInterrupted;
    return fail(started.error());
  }
  desk.started();
  return Chat(options, worker_peer(options, worker), editor, desk).run();
}

}  // namespace llorch::cli
