#include "cli/run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "cli/loading_bar.h"
#include "cli/local_worker.h"
#include "cli/output.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "http/client.h"
#include "http/sse.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What the worker's stream said, event by event.
class Answer {
 public:
  // `print`: whether text goes to stdout as it comes.
  explicit Answer(bool print) : print_(print) {}

  // False when there is no point in reading on.
  bool feed(std::string_view bytes) {
    std::vector<http::SseEvent> events;
    if (Status fed = reader_.feed(bytes, events); !fed.ok()) return fail(fed.error());
    return std::all_of(events.begin(), events.end(),
                       [this](const http::SseEvent& event) { return take(event); });
  }

  const std::string& text() const { return text_; }
  const std::string& model() const { return model_; }
  const std::optional<contract::InferenceResult>& result() const { return result_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }

  bool take(const http::SseEvent& event) {
    if (event.event == "started") {
      Result<contract::StartedEvent> started = contract::parse_started_event(event.data);
      if (!started.ok()) return fail(started.error());
      model_ = started->model;
    } else if (event.event == "token") {
      const Result<contract::TokenEvent> token = contract::parse_token_event(event.data);
      if (!token.ok()) return fail(token.error());
      text_ += token->text;
      if (print_ && !write_out(token->text)) {
        return fail({ErrorCode::Internal, "the text could not be written to standard output"});
      }
    } else if (event.event == "end") {
      Result<contract::InferenceResult> end = contract::parse_end_event(event.data);
      if (!end.ok()) return fail(end.error());
      result_ = end.take();
    } else if (event.event == "error") {
      return fail(contract::parse_error_event(event.data));
    }
    return true;
  }

  const bool print_;
  http::SseReader reader_;
  std::string text_;
  std::string model_;
  std::optional<contract::InferenceResult> result_;
  std::optional<Error> error_;
};

Status ask(const RunOptions& options, const std::string& uri, Answer& answer) {
  contract::InferenceRequest body;
  body.job_id = fmt::format("run-{}", ::getpid());
  body.prompt = options.prompt;
  body.sampling = options.sampling;
  http::ClientRequest request(http::Method::Post, uri + "/execute");
  request.headers.add("Content-Type", "application/json");
  request.body = json::serialize(contract::to_json(body));
  request.total_timeout = std::chrono::milliseconds(0);
  http::Client client;
  const Result<http::Response> response =
      client.stream(request, [&answer](std::string_view bytes) { return answer.feed(bytes); });
  if (answer.error()) return *answer.error();
  if (!response.ok()) return response.error();
  if (response->status != 200) {
    const Result<contract::ErrorReport> report = contract::parse_error_body(response->body);
    return report.ok() ? report->error : report.error();
  }
  if (!answer.result()) {
    return Error{ErrorCode::Internal, "the worker broke its answer off before the end"};
  }
  return ok_status();
}

double tokens_per_second(const contract::InferenceResult& result) {
  // The first token belongs to the prompt's time.
  if (result.decode_time_ms <= 0 || result.tokens_out < 2) return 0;
  return static_cast<double>(result.tokens_out - 1) * 1000.0 /
         static_cast<double>(result.decode_time_ms);
}

std::string numbers_text(const contract::InferenceResult& result, double load_seconds) {
  return fmt::format(
      "{} tokens, {:.1f} tokens/s, first after {:.0f} ms; loaded in {:.1f} s; {}; seed {}\n",
      result.tokens_out, tokens_per_second(result), result.ttft_ms, load_seconds,
      contract::name(result.stop_reason), result.seed);
}

json::Object numbers_json(const RunOptions& options, const Answer& answer, double load_seconds) {
  const contract::InferenceResult& result = *answer.result();
  json::Object object;
  object["model"] = answer.model();
  object["prompt"] = options.prompt;
  object["text"] = answer.text();
  object["stop_reason"] = contract::name(result.stop_reason);
  object["seed"] = result.seed;
  object["prompt_tokens"] = result.prompt_tokens;
  object["tokens_out"] = result.tokens_out;
  object["load_ms"] = static_cast<std::int64_t>(load_seconds * 1000);
  object["prefill_ms"] = result.prefill_ms;
  object["ttft_ms"] = result.ttft_ms;
  object["decode_time_ms"] = result.decode_time_ms;
  object["tokens_per_second"] = tokens_per_second(result);
  return object;
}

LocalWorkerOptions worker_options(const RunOptions& options) {
  LocalWorkerOptions worker;
  worker.program = options.worker;
  worker.model = options.model;
  if (options.threads) {
    worker.arguments.insert(worker.arguments.end(),
                            {"--threads", std::to_string(*options.threads)});
  }
  if (options.context) {
    worker.arguments.insert(worker.arguments.end(), {"--ctx", std::to_string(*options.context)});
  }
  return worker;
}

// What Ctrl-C reaches: the worker of the moment, if there is one.
class InterruptTarget {
 public:
  void set(LocalWorker* worker) {
    const std::scoped_lock lock(mutex_);
    worker_ = worker;
    if (worker_ != nullptr && interrupted_) worker_->interrupt();
  }
  void interrupt() {
    const std::scoped_lock lock(mutex_);
    interrupted_ = true;
    if (worker_ != nullptr) worker_->interrupt();
  }

 private:
  std::mutex mutex_;
  LocalWorker* worker_ = nullptr;
  bool interrupted_ = false;
};

// Asks the worker at `uri` and prints what it says. `obituary`: why the worker may have died.
Status tell(const RunOptions& options, const std::string& uri, double load_seconds,
            const std::function<std::string()>& obituary) {
  const bool print = !options.json_output;
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  // On a terminal the prompt stands in front of what follows from it.
  if (print && terminal) {
    write_out(base::paint(base::printable(options.prompt), base::Color::Bold, options.color));
  }
  Answer answer(print);
  Status asked = ask(options, uri, answer);
  if (print && (terminal || !answer.text().empty()) && !answer.text().ends_with('\n')) {
    write_out("\n");
  }
  if (!asked.ok()) {
    const std::string why = answer.error() ? "" : obituary();
    if (why.empty()) return asked;
    return Error{asked.error().code, fmt::format("{} ({})", asked.error().message, why)};
  }
  if (!print && !write_out(json::serialize(numbers_json(options, answer, load_seconds)) + "\n")) {
    return Error{ErrorCode::Internal, "the answer could not be written to standard output"};
  }
  if (print && (options.verbose || ::isatty(STDERR_FILENO) != 0)) {
    const bool color = options.color && ::isatty(STDERR_FILENO) != 0;
    write_err(base::paint(numbers_text(*answer.result(), load_seconds), base::Color::Dim, color));
  }
  return ok_status();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status tell_with_own_worker(const RunOptions& options, LocalWorker& worker) {
  const Clock::time_point started = Clock::now();
  Result<std::string> uri = Error{};
  {
    LoadingBar bar(options.model);
    uri = worker.wait_ready([&bar] { bar.tick(); });
  }
  if (!uri.ok()) return uri.error();
  return tell(options, *uri, seconds_since(started), [&worker] { return worker.obituary(); });
}

// The least busy ready worker of that model.
std::optional<contract::PoolWorker> find_worker(const std::vector<contract::PoolWorker>& workers,
                                                const std::string& model) {
  std::optional<contract::PoolWorker> best;
  for (const contract::PoolWorker& worker : workers) {
    const bool can_answer = worker.state == contract::PoolWorkerState::Ready ||
                            worker.state == contract::PoolWorkerState::Busy;
    if (!can_answer || worker.model != model) continue;
    if (!best || worker.queue_depth + worker.slots_busy < best->queue_depth + best->slots_busy)
      best = worker;
  }
  return best;
}

Status tell_with_pool(const RunOptions& options, const std::function<bool()>& interrupted) {
  const Clock::time_point started = Clock::now();
  Result<PoolClient> client = find_or_start_pool(*options.pool);
  if (!client.ok()) return client.error();
  Result<std::vector<contract::PoolWorker>> workers = client->workers();
  if (!workers.ok()) return workers.error();
  std::optional<contract::PoolWorker> worker = find_worker(*workers, options.model);
  if (!worker) {
    contract::StartWorkerRequest request;
    request.backend = options.backend;
    request.model = options.model;
    if (options.context) request.context = static_cast<std::int32_t>(*options.context);
    const Result<contract::PoolWorker> begun =
        client->post_worker("/v2/workers/start", contract::to_json(request));
    if (!begun.ok()) return begun.error();
    LoadingBar bar(options.model);
    Result<contract::PoolWorker> ready = wait_until_ready(
        *client, begun->id, [&bar](const contract::PoolWorker&) { bar.tick(); }, interrupted);
    if (!ready.ok()) return ready.error();
    worker = ready.take();
  }
  return tell(options, worker->uri, seconds_since(started), [&client, &worker]() -> std::string {
    const Result<contract::PoolWorker> now = client->worker(worker->id);
    const bool failed = now.ok() && now->state == contract::PoolWorkerState::Failed;
    return failed ? describe_failure(*now) : "";
  });
}

// A stream may be silent for long: Ctrl-C ends the process, and with its connection the worker's
// work.
int run_with_pool(const RunOptions& options) {
  const base::InterruptWatch watch([] { std::_Exit(kInterrupted); });
  const Status told = tell_with_pool(options, [&watch] { return watch.interrupted(); });
  if (watch.interrupted()) return kInterrupted;
  if (told.ok()) return 0;
  complain_lines(told.error().message);
  return kFailure;
}

}  // namespace

int run_prompt(const RunOptions& options) {
  if (options.pool) return run_with_pool(options);
  InterruptTarget target;
  const base::InterruptWatch watch([&target] { target.interrupt(); });
  Status told = ok_status();
  {
    Result<std::unique_ptr<LocalWorker>> worker = LocalWorker::start(worker_options(options));
    if (worker.ok()) {
      target.set(worker->get());
      told = tell_with_own_worker(options, **worker);
      target.set(nullptr);
    } else {
      told = worker.error();
    }
  }
  if (watch.interrupted()) return kInterrupted;
  if (told.ok()) return 0;
  complain(told.error().message);
  return kFailure;
}

}  // namespace llorch::cli
