#include "cli/local_worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "api/answers.h"
#include "base/digest.h"
#include "base/mutex.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "contract/worker_info.h"
#include "http/server.h"
#include "http/url.h"
#include "pool_client/ask_worker.h"

namespace llorch::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
constexpr milliseconds kStopPatience{5'000};
constexpr milliseconds kObituaryPatience{500};

// Not to be guessed by another program of this machine, which could answer in the worker's place.
std::string make_worker_id() {
  std::random_device random;
  return fmt::format("run-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

// A secret between us and the worker, in its environment: command lines are for all to see.
std::string make_mark() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::vector<std::string> environment_with(std::string variable) {
  std::vector<std::string> all;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry)
    all.emplace_back(*entry);
  const std::string name = variable.substr(0, variable.find('=') + 1);
  std::erase_if(all, [&name](const std::string& entry) { return entry.starts_with(name); });
  all.push_back(std::move(variable));
  return all;
}

// Where a worker listens that is still loading, as its log in JSON says ("port":41234). Empty: it
// does not say so yet.
std::string address_in_log(std::string_view log) {
  constexpr std::string_view kMark = "\"port\":";
  const std::size_t at = log.find(kMark);
  if (log.find("\"listening\"") == std::string_view::npos || at == std::string_view::npos)
    return {};
  int port = 0;
  const std::string_view rest = log.substr(at + kMark.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), port);
  return port > 0 && port < 65'536 ? fmt::format("http://127.0.0.1:{}", port) : std::string();
}

std::optional<double> ask_progress(const std::string& uri) {
  const Result<contract::HealthReport> health = pool_client::read_worker_health(uri);
  return health.ok() ? health->load_progress : std::nullopt;
}

// The last line with something in it.
std::string_view last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

// A server on loopback that waits for one message.
class LocalWorker::Callback {
 public:
  Callback() : worker_id_(make_worker_id()), mark_(make_mark()) {}

  Status start() {
    http::Router router;
    router.add(http::Method::Post, "/ready",
               http::PlainHandler([this](const http::Request& request) { return take(request); }));
    http::ServerOptions options;
    options.io_threads = 1;
    options.render_error = api::render_error;
    Result<std::unique_ptr<http::Server>> server =
        http::Server::start(std::move(router), std::move(options));
    if (!server.ok()) return server.error().in("the server for the worker's callback");
    server_ = server.take();
    return ok_status();
  }

  const std::string& worker_id() const { return worker_id_; }
  std::string variable() const {
    return fmt::format("{}={}", contract::kWorkerMarkVariable, mark_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/ready", server_->port()); }

  std::optional<std::string> wait_uri(milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    const base::MutexLock lock(mutex_);
    while (!uri_ && !interrupted_ && changed_.wait_until(mutex_, deadline)) {
    }
    return uri_;
  }

  void interrupt() {
    const base::MutexLock lock(mutex_);
    interrupted_ = true;
    changed_.notify_all();
  }
  bool interrupted() const {
    const base::MutexLock lock(mutex_);
    return interrupted_;
  }

 private:
  // On an io thread.
  Result<http::Response> take(const http::Request& request) {
    Result<contract::ReadyCallback> ready = contract::parse_ready_callback(request.body);
    if (!ready.ok()) return Error{ErrorCode::InvalidArgument, ready.error().message};
    if (ready->worker_id != worker_id_) {
      return Error{ErrorCode::Forbidden,
                   fmt::format("worker {} was not started here", base::quoted(ready->worker_id))};
    }
    if (!base::is_same_secret(request.headers.find(contract::kWorkerMarkHeader).value_or(""),
                              mark_)) {
      return Error{ErrorCode::Forbidden, "this is not the worker that was started here"};
    }
    const Result<http::Url> url = http::parse_url(ready->uri);
    if (!url.ok()) return url.error();
    const base::MutexLock lock(mutex_);
    uri_ = fmt::format("http://127.0.0.1:{}", url->port);  // nobody can lead a prompt elsewhere
    changed_.notify_all();
    return http::Response(200, "application/json", "{}");
  }

  const std::string worker_id_;
  const std::string mark_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<std::string> uri_ LLORCH_GUARDED_BY(mutex_);
  bool interrupted_ LLORCH_GUARDED_BY(mutex_) = false;
  std::unique_ptr<http::Server> server_;  // last: stops before the rest goes
};

Result<std::unique_ptr<LocalWorker>> LocalWorker::start(LocalWorkerOptions options) {
  auto callback = std::make_unique<Callback>();
  if (Status started = callback->start(); !started.ok()) return started.error();
  base::ProcessOptions process;
  process.program = options.program;
  process.dies_with_parent = true;
  process.environment = environment_with(callback->variable());
  process.arguments = {
      "--worker-id", callback->worker_id(), "--model",      options.model, "--port",
      "0",           "--callback-url",      callback->url()};
  process.arguments.insert(process.arguments.end(), options.arguments.begin(),
                           options.arguments.end());
  Result<std::unique_ptr<base::Process>> spawned = base::Process::spawn(process);
  if (!spawned.ok()) {
    return Error{spawned.error().code,
                 fmt::format("the worker {}; it belongs beside llorch (build it, or name it with "
                             "--worker)",
                             spawned.error().message)};
  }
  return std::unique_ptr<LocalWorker>(
      new LocalWorker(std::move(options), std::move(callback), spawned.take()));
}

LocalWorker::LocalWorker(LocalWorkerOptions options, std::unique_ptr<Callback> callback,
                         std::unique_ptr<base::Process> process)
    : options_(std::move(options)), callback_(std::move(callback)), process_(std::move(process)) {}

LocalWorker::~LocalWorker() {
  stop();
}

Result<std::string> LocalWorker::wait_ready(
    const std::function<void(std::optional<double> progress)>& on_tick) {
  const auto until = std::chrono::steady_clock::now() + options_.load_patience;
  std::string loading_at;  // where /health answers, once the log says so
  for (;;) {
    if (std::optional<std::string> uri = callback_->wait_uri(kTick)) return *uri;
    if (callback_->interrupted()) return Error{ErrorCode::Cancelled, "interrupted"};
    if (process_->wait_for(milliseconds(0))) {
      return Error{ErrorCode::LoadFailed, fmt::format("the model {} was not loaded: {}",
                                                      base::quoted(options_.model), obituary())};
    }
    if (std::chrono::steady_clock::now() > until) {
      return Error{
          ErrorCode::DeadlineExceeded,
          fmt::format("{} was not ready after {} s; run it by hand to see what it waits for",
                      options_.program.filename().string(), options_.load_patience.count() / 1000)};
    }
    if (loading_at.empty()) loading_at = address_in_log(process_->output_tail());
    on_tick(loading_at.empty() ? std::nullopt : ask_progress(loading_at));
  }
}

void LocalWorker::interrupt() {
  callback_->interrupt();
  process_->send_signal(SIGKILL);
}

void LocalWorker::stop() {
  process_->stop(kStopPatience);
}

std::string LocalWorker::obituary() {
  const std::optional<base::ExitStatus> status = process_->wait_for(kObituaryPatience);
  if (!status) return {};
  const std::string output = process_->output_tail();
  const std::string_view line = last_line(output);
  return fmt::format("{} {}{}{}", options_.program.filename().string(), status->describe(),
                     line.empty() ? "" : ": ", base::printable(line));
}

}  // namespace llorch::cli
