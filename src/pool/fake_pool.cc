#include "pool/fake_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/answers.h"
#include "http/test_server.h"

namespace llorch::pool::test {
namespace {

constexpr std::chrono::seconds kPatience{20};

Error unknown(std::string_view id) {
  return {ErrorCode::NotFound, fmt::format("there is no worker {}", id)};
}

}  // namespace

contract::PoolWorker a_worker(std::string id, contract::PoolWorkerState state) {
  contract::PoolWorker worker;
  worker.id = std::move(id);
  worker.backend = "cpu";
  worker.model = "m";
  worker.state = state;
  worker.uri = "http://127.0.0.1:8000";
  worker.pid = 4711;
  worker.started_at = "2026-01-02T03:04:05.006Z";
  worker.planned.kv_type = "f16";
  return worker;
}

void FakeWorkers::put(contract::PoolWorker worker) {
  const base::MutexLock lock(mutex_);
  std::erase_if(workers_, [&](const auto& other) { return other.id == worker.id; });
  workers_.push_back(std::move(worker));
}

void FakeWorkers::fail_starts(Error error) {
  const base::MutexLock lock(mutex_);
  start_error_ = std::move(error);
}

std::vector<std::string> FakeWorkers::calls() const {
  const base::MutexLock lock(mutex_);
  return calls_;
}

contract::StartWorkerRequest FakeWorkers::last_start() const {
  const base::MutexLock lock(mutex_);
  return last_start_;
}

contract::PoolWorker* FakeWorkers::find(std::string_view id) {
  const auto found = std::find_if(workers_.begin(), workers_.end(),
                                  [id](const auto& worker) { return worker.id == id; });
  return found == workers_.end() ? nullptr : &*found;
}

Result<contract::PoolWorker> FakeWorkers::start_worker(
    const contract::StartWorkerRequest& request) {
  const base::MutexLock lock(mutex_);
  calls_.push_back(fmt::format("start {} {}", request.backend, request.model));
  last_start_ = request;
  if (start_error_) return *start_error_;
  contract::PoolWorker worker =
      a_worker(fmt::format("worker-{}-{}", request.backend, workers_.size()),
               contract::PoolWorkerState::Starting);
  worker.model = request.model;
  worker.on_demand = request.on_demand;
  workers_.push_back(worker);
  return worker;
}

Result<contract::PoolWorker> FakeWorkers::stop_worker(
    std::string_view id, std::optional<std::chrono::seconds> patience) {
  const base::MutexLock lock(mutex_);
  calls_.push_back(patience ? fmt::format("stop {} within {} s", id, patience->count())
                            : fmt::format("stop {}", id));
  contract::PoolWorker* worker = find(id);
  if (worker == nullptr) return unknown(id);
  worker->state = contract::PoolWorkerState::Draining;
  return *worker;
}

Result<contract::PoolWorker> FakeWorkers::restart_worker(std::string_view id) {
  const base::MutexLock lock(mutex_);
  calls_.push_back(fmt::format("restart {}", id));
  contract::PoolWorker* worker = find(id);
  if (worker == nullptr) return unknown(id);
  worker->state = contract::PoolWorkerState::Starting;
  return *worker;
}

Status FakeWorkers::worker_ready(const contract::ReadyCallback& callback, std::string_view mark) {
  const base::MutexLock lock(mutex_);
  calls_.push_back(fmt::format("ready {} {}", callback.worker_id, mark));
  contract::PoolWorker* worker = find(callback.worker_id);
  if (worker == nullptr) return unknown(callback.worker_id);
  worker->state = contract::PoolWorkerState::Ready;
  return ok_status();
}

std::vector<contract::PoolWorker> FakeWorkers::workers() const {
  const base::MutexLock lock(mutex_);
  return workers_;
}

Result<contract::PoolWorker> FakeWorkers::worker(std::string_view id) const {
  const base::MutexLock lock(mutex_);
  for (const contract::PoolWorker& worker : workers_) {
    if (worker.id == id) return worker;
  }
  return unknown(id);
}

bool FakeWorkers::uses_model(std::string_view model) const {
  const base::MutexLock lock(mutex_);
  return std::any_of(workers_.begin(), workers_.end(), [model](const auto& worker) {
    return worker.model == model && worker.state < contract::PoolWorkerState::Stopped;
  });
}

void FakeWorkers::stop_all(const std::function<void(int running)>& on_progress) {
  {
    const base::MutexLock lock(mutex_);
    calls_.emplace_back("stop_all");
  }
  on_progress(0);
}

void Script::say(const contract::DownloadEvent& event) {
  const base::MutexLock lock(mutex_);
  events_.push_back(event);
  changed_.notify_all();
}

void Script::succeed() {
  const base::MutexLock lock(mutex_);
  end_ = ok_status();
  changed_.notify_all();
}

void Script::fail(Error error) {
  const base::MutexLock lock(mutex_);
  end_ = std::move(error);
  changed_.notify_all();
}

bool Script::wait_until_begun() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const base::MutexLock lock(mutex_);
  while (!begun_ && changed_.wait_until(mutex_, deadline)) {
  }
  return begun_;
}

Result<std::monostate> Script::run(const contract::OnDownloadEvent& on_event,
                                   std::stop_token stop) {
  const std::stop_callback on_stop(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  for (std::size_t next = 0;;) {
    std::optional<contract::DownloadEvent> event;
    {
      const base::MutexLock lock(mutex_);
      begun_ = true;
      changed_.notify_all();
      while (next == events_.size() && !end_ && !stop.stop_requested()) changed_.wait(mutex_);
      if (next == events_.size() && !end_)
        return Error{ErrorCode::Cancelled, "cancelled; what has come is kept"};
      if (next == events_.size()) return *end_;
      event = events_[next++];
    }
    on_event(*event);
  }
}

FakePool::FakePool(const RouteSettings& settings, const DownloadsOptions& options)
    : downloads(options) {
  home.config_file = folder / "config.toml";
  home.data = folder.path();
  home.state = folder.path();
  home.cache = folder / "cache";
  host.change([](contract::HostInfo& info) {
    info.hostname = "attic";
    info.cores = 2;
    info.threads = 4;
    info.memory_total_bytes = std::int64_t{8} << 30;
    info.disk_free_bytes = std::int64_t{100} << 30;
    info.gpu_note = "no NVIDIA driver";
  });
  server = http::test::start(make_router(services(), settings), [] {
    http::ServerOptions server_options = http::test::plain_options();
    server_options.render_error = api::render_error;
    return server_options;
  }());
}

PoolServices FakePool::services() {
  return PoolServices{
      .home = home,
      .workers = workers,
      .downloads = downloads,
      .threads = threads,
      .board = board,
      .fence = fence,
      .speeds = speeds,
      .host = [this] { return host.get(); },
      .plan = [this](const contract::ModelEntry& model,
                     const PlanRequest& request) -> Result<std::vector<MemoryPlan>> {
        const auto answer = plan.get();
        if (!answer) return Error{ErrorCode::Unsupported, "no plans here"};
        return answer(model, request);
      },
      .download = [this](const catalog::DownloadRequest& request,
                         const contract::OnDownloadEvent& on_event,
                         std::stop_token stop) -> Result<contract::ModelEntry> {
        download_requests.change([&](auto& all) { all.push_back(request); });
        const Result<std::monostate> end = script.run(on_event, std::move(stop));
        if (!end.ok()) return end.error();
        contract::ModelEntry entry;
        entry.id = request.id;
        entry.downloaded = true;
        return entry;
      },
      .verify = [this](const catalog::VerifyRequest& request,
                       const contract::OnDownloadEvent& on_event,
                       std::stop_token stop) -> Result<catalog::VerifyReport> {
        verify_requests.change([&](auto& all) { all.push_back(request); });
        const Result<std::monostate> end = script.run(on_event, std::move(stop));
        if (!end.ok()) return end.error();
        return report.get();
      },
      .adopt =
          [this](const catalog::AdoptRequest& request) {
            return catalog::adopt_models(
                home, [](const char*) -> const char* { return nullptr; }, request);
          },
      .check_revisions =
          [](const std::vector<contract::ModelEntry>& models) {
            std::vector<catalog::RevisionCheck> checks;
            for (const contract::ModelEntry& model : models) {
              catalog::RevisionCheck check;
              check.id = model.id;
              checks.push_back(std::move(check));
            }
            return checks;
          },
      .request_shutdown = [this] { shutdown_requested = true; },
      .phase = [this]() -> PoolPhase { return phase; },
      .confinement = "files by landlock (ABI 3), ports not",
      .labels = {"zone=attic"}};
}

std::string FakePool::ask(std::string_view request) const {
  http::test::RawSocket socket(server->port());
  socket.send(request);
  return socket.read_all();
}

std::string FakePool::get(std::string_view path) const {
  return send("GET", path);
}

std::string FakePool::send(std::string_view method, std::string_view path, std::string_view body,
                           std::string_view content_type) const {
  std::string request =
      fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n", method, path);
  if (!body.empty() || method == "POST" || method == "PATCH") {
    request += fmt::format("Content-Length: {}\r\n", body.size());
    if (!content_type.empty()) request += fmt::format("Content-Type: {}\r\n", content_type);
  }
  return ask(request + "\r\n" + std::string(body));
}

}  // namespace llorch::pool::test
