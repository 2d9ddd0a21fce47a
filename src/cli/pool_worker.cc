// llorch-pool worker spawn, list, stop, restart, logs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/timestamp.h"
#include "base/utf8.h"
#include "cli/find_pool.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "cli/pool_tables.h"
#include "contract/backend_kind.h"
#include "http/url.h"
#include "pool/log_tail.h"
#include "pool/pool_manager.h"
#include "pool/worker_log.h"

namespace llorch::cli {
namespace {

using contract::PoolWorker;
using contract::PoolWorkerState;

constexpr std::chrono::milliseconds kLook{100};
constexpr int kLogLinesMax = 10'000;
constexpr int kDrainSec = 30;  // what a manager gives a worker that is not told otherwise

constexpr const char* kSpawnFooter = R"(Examples:
  llorch-pool worker spawn cpu --model builtin
  llorch-pool worker spawn cuda --model tinyllama --gpu 1 --ctx 4096 --slots 8
  llorch-pool worker spawn cpu --model tinyllama --kv q8_0 --no-wait
  llorch-pool worker spawn cpu --model mine --chat-template chatml

Waits until the worker is ready and prints its id and address. A worker that would
not fit into memory is refused before it starts: `llorch-pool plan ID` shows the
numbers. The pool manager is started where none is running.)";

constexpr const char* kListFooter = R"(Examples:
  llorch-pool worker list
  llorch-pool worker list --json | jq -r '.workers[] | select(.state == "ready") | .uri'

States: starting, ready, busy, draining, stopped, failed (with why). One that was
stopped is listed for ten minutes, with --all for as long as its log is here.)";

constexpr const char* kStopFooter = R"(Examples:
  llorch-pool worker stop worker-cpu-0
  llorch-pool worker stop --all

The worker takes nothing new and finishes what it is at, for as long as --timeout
says (30 s); what is then still running is cut off: its streams end with an error.
Exit code 0 also then; --json has `cut`, how many ran when it was last seen.
A worker that has ended already is forgotten; `worker logs ID` still shows its log.)";

constexpr const char* kLogsFooter = R"(Examples:
  llorch-pool worker logs worker-cpu-0
  llorch-pool worker logs worker-cpu-0 -n 20 -f

Works without a manager too. -f goes on until the worker ends or Ctrl-C. With --json
each line is an object.)";

struct SpawnArguments {
  contract::StartWorkerRequest request;
  bool no_wait = false;
};

struct StopArguments {
  std::string id;
  std::optional<int> timeout_sec;
  bool all = false;
  bool no_wait = false;
};

struct LogArguments {
  std::string id;
  int lines = 100;
  bool follow = false;
};

int print_worker(const PoolContext& context, const PoolWorker& worker) {
  if (context.json_output) return print_json(contract::to_json(worker));
  std::string text = fmt::format("{} {}", worker.id, contract::name(worker.state));
  if (!worker.uri.empty()) text += " at " + worker.uri;
  text += fmt::format(" ({}", worker.model);
  if (worker.context > 0) text += fmt::format(", context {}", worker.context);
  if (worker.slots > 0) text += fmt::format(", {} slots", worker.slots);
  return write_out(base::printable(text + ")") + "\n") ? 0 : kFailure;
}

// Waits for readiness with a line that shows how far it is.
int await_ready(const PoolContext& context, PoolClient& client, const PoolWorker& started) {
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  base::StatusLine line(stderr);
  const Result<PoolWorker> ready = pool_client::wait_until_ready(
      client, started.id,
      [&line](const PoolWorker& worker) {
        line.show(fmt::format("{} {} {} {:3.0f} %", worker.id, contract::name(worker.state),
                              base::progress_bar(worker.load_progress, 20),
                              worker.load_progress * 100));
      },
      {.total = std::chrono::milliseconds(0), .stop = stop.get_token()});
  line.clear();
  if (ready.ok()) return print_worker(context, *ready);
  if (ready.error().code == ErrorCode::Cancelled) {
    write_err(fmt::format("{} goes on starting; `llorch-pool worker stop {}` ends it\n", started.id,
                          started.id));
    return kInterrupted;
  }
  return fail(ready.error());
}

// Names of built-in templates have neither a slash nor a dot. The manager has another folder than
// whoever types.
void make_template_path_whole(std::string& chosen) {
  if (chosen.find_first_of("/.") == std::string::npos) return;
  chosen = std::filesystem::absolute(chosen).lexically_normal().string();
}

int spawn(const PoolContext& context, const SpawnArguments& arguments) {
  Result<PoolClient> client = find_or_start_pool(target_of(context));
  if (!client.ok()) return fail(client.error());
  const Result<PoolWorker> started =
      client->post_worker("/v2/workers/start", contract::to_json(arguments.request));
  if (!started.ok()) return fail(started.error());
  if (arguments.no_wait) return print_worker(context, *started);
  return await_ready(context, *client, *started);
}

int restart(const PoolContext& context, const std::string& id, bool no_wait) {
  Result<PoolClient> client = find_or_start_pool(target_of(context));
  if (!client.ok()) return fail(client.error());
  const Result<PoolWorker> started = client->post_worker(
      fmt::format("/v2/workers/{}/restart", http::percent_encode(id)), json::Object());
  if (!started.ok()) return fail(started.error());
  if (no_wait) return print_worker(context, *started);
  return await_ready(context, *client, *started);
}

// From the manager, or from the records where none runs.
Result<std::vector<PoolWorker>> all_workers(const PoolContext& context) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (client.ok()) return client->workers();
  if (!context.pool_url.empty()) return client.error();
  return pool::read_worker_records(context.home);
}

// Those that have left the list and whose logs are still here.
void add_left(const PoolContext& context, std::vector<PoolWorker>& workers) {
  for (const pool::LeftLog& left : pool::list_logs(context.home)) {
    const auto is_it = [&left](const PoolWorker& worker) { return worker.id == left.id; };
    if (std::any_of(workers.begin(), workers.end(), is_it)) continue;
    PoolWorker worker;
    worker.id = left.id;
    for (const contract::BackendKind& kind : contract::kBackendKinds) {
      if (left.id.starts_with(fmt::format("worker-{}-", kind.name))) worker.backend = kind.name;
    }
    worker.state = PoolWorkerState::Stopped;
    worker.ended_at = base::to_rfc3339(left.last_written);
    worker.log_file = left.file.string();
    workers.push_back(std::move(worker));
  }
}

int list(const PoolContext& context, bool all) {
  Result<std::vector<PoolWorker>> workers = all_workers(context);
  if (!workers.ok()) return fail(workers.error());
  if (all && context.pool_url.empty()) add_left(context, *workers);
  if (context.json_output) {
    json::Array array;
    for (const PoolWorker& worker : *workers) array.emplace_back(contract::to_json(worker));
    const json::Object object{{"workers", std::move(array)}};
    return print_json(object);
  }
  const std::string table =
      workers_table(*workers, std::chrono::system_clock::now(), context.color);
  return print(table);
}

std::int64_t requests_of(const PoolWorker& worker) {
  return worker.slots_busy + worker.queue_depth;
}

// Workers on their way out, and what they have left to do.
class Stopping {
 public:
  // `workers`: each with what it had to do when it was told to stop.
  Stopping(PoolClient& client, std::map<std::string, std::int64_t> workers, int timeout_sec)
      : client_(client), timeout_(timeout_sec), workers_(std::move(workers)) {}

  // Waits until all have ended; the code to leave with when that is not to be.
  int wait() {
    const base::InterruptWatch watch([] {});
    base::StatusLine line(stderr);
    while (!workers_.empty()) {
      std::int64_t left = 0;
      for (auto worker = workers_.begin(); worker != workers_.end();) {
        const Result<bool> gone = look(worker->first, worker->second);
        if (!gone.ok()) return fail(gone.error());
        left += worker->second;
        worker = *gone ? workers_.erase(worker) : std::next(worker);
      }
      if (workers_.empty()) break;
      line.show(text(left));
      if (watch.interrupted()) return kInterrupted;
      std::this_thread::sleep_for(kLook);
    }
    return 0;
  }

  // Requests that were still running when their worker was last seen, of those that were ended
  // because their time was over.
  std::int64_t num_cut() const { return num_cut_; }

 private:
  // Whether it has ended, or nobody knows it any more. `requests`: what it had to do when it was
  // last seen.
  Result<bool> look(const std::string& id, std::int64_t& requests) {
    const Result<PoolWorker> worker = client_.worker(id);
    if (!worker.ok() && worker.error().code != ErrorCode::NotFound) return worker.error();
    const bool is_gone = !worker.ok() || worker->state == PoolWorkerState::Stopped ||
                         worker->state == PoolWorkerState::Failed;
    // A worker that ended by itself had finished; one that outlived its time had not.
    if (is_gone && seconds() >= timeout_) num_cut_ += requests;
    requests = is_gone ? 0 : requests_of(*worker);
    return is_gone;
  }

  std::string text(std::int64_t left) const {
    std::string what = workers_.size() == 1 ? "stopping " + workers_.begin()->first
                                            : fmt::format("stopping {} workers", workers_.size());
    if (left == 0) return what;
    return fmt::format("{}: {} requests to finish, {} s left for them", what, left,
                       std::max(0, timeout_ - seconds()));
  }

  int seconds() const {
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun_)
            .count());
  }

  PoolClient& client_;
  const int timeout_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::map<std::string, std::int64_t> workers_;
  std::int64_t num_cut_ = 0;
};

// `state`: "stopped", or "draining" when nobody waited for the end.
int print_stopped(const PoolContext& context, const std::vector<std::string>& ids,
                  std::string_view state, std::int64_t num_cut = 0) {
  if (context.json_output) {
    const json::Object object{{state, json::Array(ids.begin(), ids.end())}, {"cut", num_cut}};
    return print_json(object);
  }
  std::string text = ids.empty() ? "no workers to stop\n" : "";
  for (const std::string& id : ids) text += fmt::format("{} {}\n", base::printable(id), state);
  if (num_cut > 0)
    text += fmt::format(
        "{} requests were still running and were cut off; --timeout SEC gives them "
        "more time\n",
        num_cut);
  return print(text);
}

json::Object stop_body(const std::string& id, const StopArguments& arguments) {
  json::Object body{{"id", id}};
  if (arguments.timeout_sec) body["timeout_sec"] = *arguments.timeout_sec;
  return body;
}

int stop(const PoolContext& context, const StopArguments& arguments) {
  const PoolTarget target = target_of(context);
  Result<PoolClient> client = find_pool(target);
  if (!client.ok() && context.pool_url.empty()) {
    // Without a manager nothing can be drained; one that starts adopts what runs.
    if (!pool::read_worker_records(context.home).empty())
      client = find_or_start_pool(target);
    else if (arguments.all)
      return print_stopped(context, {}, "stopped");
  }
  if (!client.ok()) return fail(client.error());
  std::vector<std::string> ids = {arguments.id};
  if (arguments.all) {
    const Result<std::vector<PoolWorker>> workers = client->workers();
    if (!workers.ok()) return fail(workers.error());
    ids.clear();
    for (const PoolWorker& worker : *workers) ids.push_back(worker.id);
  }
  std::map<std::string, std::int64_t> stopping_workers;
  for (const std::string& id : ids) {
    const Result<PoolWorker> stopped =
        client->post_worker("/v2/workers/stop", stop_body(id, arguments));
    // With --all one may have ended by itself in between.
    const bool is_known = stopped.ok() || stopped.error().code != ErrorCode::NotFound;
    if (!stopped.ok() && (is_known || !arguments.all)) return fail(stopped.error());
    stopping_workers[id] = stopped.ok() ? requests_of(*stopped) : 0;
  }
  if (arguments.no_wait) return print_stopped(context, ids, "draining");
  Stopping stopping(*client, std::move(stopping_workers),
                    arguments.timeout_sec.value_or(kDrainSec));
  if (const int code = stopping.wait(); code != 0) return code;
  return print_stopped(context, ids, "stopped", stopping.num_cut());
}

// A line of a log as a user sees it; with --json an object, of a line that is none {"line":…}.
std::string log_line(std::string_view line, bool as_json) {
  if (!as_json) return base::printable(line);
  const Result<json::Value> parsed = json::parse(line);
  if (parsed.ok() && parsed->is_object()) return json::serialize(*parsed);
  return json::serialize(json::Object{{"line", base::printable(line)}});
}

bool print_log(std::string_view text, bool as_json) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.size(), text.find('\n'));
    out += log_line(text.substr(0, end), as_json) + "\n";
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  if (write_out(out)) return true;
  complain("the output cannot be written");
  return false;
}

int follow_over_http(const PoolClient& client, const std::string& path, bool as_json) {
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  bool is_writable = true;
  const Status streamed =
      client.read_events(path,
                         [&is_writable, as_json](const http::SseEvent& event) {
                           if (event.event == "log") is_writable = print_log(event.data, as_json);
                           return is_writable;
                         },
                         {.total = std::chrono::milliseconds(0), .stop = stop.get_token()});
  if (watch.interrupted()) return kInterrupted;
  if (!is_writable) return kFailure;
  return streamed.ok() ? 0 : fail(streamed.error());
}

int logs_over_http(PoolClient& client, const LogArguments& arguments, bool as_json) {
  const std::string path = fmt::format("/v2/workers/{}/logs?lines={}",
                                       http::percent_encode(arguments.id), arguments.lines);
  if (arguments.follow) return follow_over_http(client, path + "&follow=true", as_json);
  const Result<std::string> text = client.get_text(path);
  if (!text.ok()) return fail(text.error());
  return print_log(*text, as_json) ? 0 : kFailure;
}

int logs_from_file(const PoolContext& context, const LogArguments& arguments) {
  const auto find = [&]() -> std::optional<PoolWorker> {
    const std::vector<PoolWorker> workers = pool::read_worker_records(context.home);
    const auto found = std::find_if(workers.begin(), workers.end(), [&](const PoolWorker& worker) {
      return worker.id == arguments.id;
    });
    if (found == workers.end()) return std::nullopt;
    return *found;
  };
  const std::optional<PoolWorker> worker = find();
  const std::optional<std::filesystem::path> left = pool::find_log_of(context.home, arguments.id);
  if (!worker && !left) {
    return fail({ErrorCode::NotFound,
                 fmt::format("there is no worker {}; `llorch-pool worker list` shows them",
                             base::quoted(arguments.id))});
  }
  Result<pool::LogTail> tail =
      pool::LogTail::open(worker ? std::filesystem::path(worker->log_file) : *left,
                          static_cast<std::size_t>(arguments.lines));
  if (!tail.ok()) return fail(tail.error());
  const base::InterruptWatch watch([] {});
  for (;;) {
    const std::optional<PoolWorker> now = arguments.follow ? find() : std::nullopt;
    const bool has_ended =
        !now || now->state == PoolWorkerState::Stopped || now->state == PoolWorkerState::Failed;
    const Result<std::string> text = tail->read_more(has_ended);
    if (!text.ok()) return fail(text.error());
    if (!text->empty()) {
      if (!print_log(*text, context.json_output)) return kFailure;
      continue;
    }
    if (has_ended) return 0;
    if (watch.interrupted()) return kInterrupted;
    std::this_thread::sleep_for(kLook);
  }
}

int logs(const PoolContext& context, const LogArguments& arguments) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (client.ok()) return logs_over_http(*client, arguments, context.json_output);
  if (!context.pool_url.empty()) return fail(client.error());
  return logs_from_file(context, arguments);
}

void add_spawn(CLI::App& worker, PoolContext& context) {
  auto arguments = std::make_shared<SpawnArguments>();
  CLI::App* spawn_command = worker.add_subcommand("spawn", "start a worker for a model");
  contract::StartWorkerRequest& request = arguments->request;
  spawn_command->add_option("BACKEND", request.backend, "cpu or cuda")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember(contract::backend_names()).description(""));
  spawn_command->add_option("-m,--model", request.model, "a model of the catalog, or builtin")
      ->required()
      ->type_name("ID");
  spawn_command->add_option("--gpu", request.gpu, "which GPU (0)")
      ->type_name("N")
      ->check(CLI::Range(0, 255).description(""));
  spawn_command->add_option("--ctx", request.context, "context in tokens; default: what fits")
      ->type_name("N")
      ->check(CLI::Range(1, 16'777'216).description(""));
  spawn_command->add_option("--slots", request.slots, "sequences that run at once")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""));
  spawn_command->add_option("--kv", request.kv_type, "type of the cache: f16 (default), q8_0")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f16", "q8_0"}).description(""));
  spawn_command
      ->add_option("--chat-template", request.chat_template,
                   "instead of the model's own: a built-in one (chatml, …), or a file")
      ->type_name("NAME|FILE");
  spawn_command->add_flag("--no-wait", arguments->no_wait, "do not wait until it is ready");
  spawn_command->footer(kSpawnFooter);
  spawn_command->callback([&context, arguments] {
    if (arguments->request.gpu && !contract::needs_gpu(arguments->request.backend))
      throw CLI::ValidationError("--gpu", "a worker on the CPU has no GPU: ask for cuda");
    make_template_path_whole(arguments->request.chat_template);
    context.chosen = [&context, arguments] { return spawn(context, *arguments); };
  });
}

void add_stop(CLI::App& worker, PoolContext& context) {
  auto arguments = std::make_shared<StopArguments>();
  CLI::App* command = worker.add_subcommand("stop", "drain and stop a worker");
  command->add_option("ID", arguments->id, "which one")->type_name("");
  command->add_flag("--all", arguments->all, "every worker");
  command
      ->add_option("--timeout", arguments->timeout_sec,
                   "cut off what is not finished after SEC seconds (30)")
      ->type_name("SEC")
      ->check(CLI::Range(0, 3600).description(""));
  command->add_flag("--no-wait", arguments->no_wait, "do not wait until it is gone");
  command->footer(kStopFooter);
  command->callback([&context, arguments] {
    if (arguments->id.empty() != arguments->all) throw CLI::RequiredError("an ID, or --all,");
    context.chosen = [&context, arguments] { return stop(context, *arguments); };
  });
}

void add_restart(CLI::App& worker, PoolContext& context) {
  auto arguments = std::make_shared<StopArguments>();
  CLI::App* command =
      worker.add_subcommand("restart", "stop a worker and start it with the same flags");
  command->add_option("ID", arguments->id, "which one")->required()->type_name("");
  command->add_flag("--no-wait", arguments->no_wait, "do not wait until it is ready");
  run_when_named(*command, context, [&context, arguments] {
    return restart(context, arguments->id, arguments->no_wait);
  });
}

void add_logs(CLI::App& worker, PoolContext& context) {
  auto arguments = std::make_shared<LogArguments>();
  CLI::App* command = worker.add_subcommand("logs", "the end of a worker's log");
  command->add_option("ID", arguments->id, "which one")->required()->type_name("");
  command->add_option("-n,--lines", arguments->lines, "how many lines (100)")
      ->type_name("N")
      ->check(CLI::Range(0, kLogLinesMax).description(""));
  command->add_flag("-f,--follow", arguments->follow, "go on with what comes");
  command->footer(kLogsFooter);
  run_when_named(*command, context, [&context, arguments] { return logs(context, *arguments); });
}

}  // namespace

void add_worker_commands(CLI::App& app, PoolContext& context) {
  CLI::App* worker = app.add_subcommand("worker", "worker processes of this host");
  worker->require_subcommand(1);
  add_spawn(*worker, context);
  CLI::App* list_command = worker->add_subcommand("list", "every worker and how it is");
  auto all = std::make_shared<bool>(false);
  list_command->add_flag("--all", *all, "also those that ended long ago and left a log here");
  list_command->footer(kListFooter);
  run_when_named(*list_command, context, [&context, all] { return list(context, *all); });
  add_stop(*worker, context);
  add_restart(*worker, context);
  add_logs(*worker, context);
}

}  // namespace llorch::cli
