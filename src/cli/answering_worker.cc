#include "cli/answering_worker.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "cli/loading_bar.h"
#include "contract/pool_info.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;

LocalWorkerOptions local_options(const WorkerChoice& choice) {
  LocalWorkerOptions options;
  options.program = choice.worker;
  options.model = choice.model;
  const auto add = [&options](const char* flag, const std::optional<std::int64_t>& value) {
    if (value) options.arguments.insert(options.arguments.end(), {flag, std::to_string(*value)});
  };
  add("--threads", choice.threads);
  add("--ctx", choice.context);
  return options;
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

}  // namespace

AnsweringWorker::~AnsweringWorker() {
  std::unique_ptr<LocalWorker> own;
  {
    const base::MutexLock lock(mutex_);
    own = std::move(own_);
  }
}

Status AnsweringWorker::start() {
  const Clock::time_point started = Clock::now();
  Status done = choice_.pool ? start_in_pool() : start_own();
  load_seconds_ = std::chrono::duration<double>(Clock::now() - started).count();
  return done;
}

Status AnsweringWorker::start_own() {
  Result<std::unique_ptr<LocalWorker>> worker = LocalWorker::start(local_options(choice_));
  if (!worker.ok()) return worker.error();
  {
    const base::MutexLock lock(mutex_);
    own_ = worker.take();
    if (stop_.stop_requested()) own_->interrupt();
  }
  LoadingBar bar(choice_.model);
  Result<std::string> uri =
      own()->wait_ready([&bar](std::optional<double> progress) { bar.tick(progress); });
  if (!uri.ok()) return uri.error();
  uri_ = uri.take();
  return ok_status();
}

Status AnsweringWorker::start_in_pool() {
  Result<PoolClient> client = find_or_start_pool(*choice_.pool);
  if (!client.ok()) return client.error();
  client_ = client.take();
  const Result<std::vector<contract::PoolWorker>> workers = client_->workers();
  if (!workers.ok()) return workers.error();
  std::optional<contract::PoolWorker> worker = find_worker(*workers, choice_.model);
  if (!worker) {
    contract::StartWorkerRequest request;
    request.backend = choice_.backend;
    request.model = choice_.model;
    if (choice_.context) request.context = static_cast<std::int32_t>(*choice_.context);
    const Result<contract::PoolWorker> begun =
        client_->post_worker("/v2/workers/start", contract::to_json(request));
    if (!begun.ok()) return begun.error();
    LoadingBar bar(choice_.model);
    Result<contract::PoolWorker> ready = pool_client::wait_until_ready(
        *client_, begun->id,
        [&bar](const contract::PoolWorker& seen) { bar.tick(seen.load_progress); },
        {.total = std::chrono::milliseconds(0), .stop = stop_.get_token()});
    if (!ready.ok()) return ready.error();
    worker = ready.take();
  }
  pool_worker_ = worker->id;
  uri_ = worker->uri;
  if (is_on_this_host(uri_) && !is_on_this_host(client_->url())) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} listens on {} of the pool's own host, where it cannot be asked "
                             "from here; run this command there",
                             pool_worker_, uri_)};
  }
  return ok_status();
}

void AnsweringWorker::interrupt() {
  stop_.request_stop();
  const base::MutexLock lock(mutex_);
  if (own_ != nullptr) own_->interrupt();
}

LocalWorker* AnsweringWorker::own() {
  const base::MutexLock lock(mutex_);
  return own_.get();
}

std::string AnsweringWorker::obituary() {
  if (LocalWorker* worker = own()) return worker->obituary();
  if (!client_) return {};
  const Result<contract::PoolWorker> now = client_->worker(pool_worker_);
  const bool failed = now.ok() && now->state == contract::PoolWorkerState::Failed;
  return failed ? pool_client::describe_failure(*now) : "";
}

}  // namespace llorch::cli
