// For tests only: workers that record what they are asked, and the real API in front of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "http/server.h"
#include "pool/routes.h"
#include "support/test_paths.h"

namespace llorch::pool::test {

// What the test and the server's threads both use.
template <class T>
class Shared {
 public:
  T get() const {
    const base::MutexLock lock(mutex_);
    return value_;
  }
  template <class Change>
  void change(Change change) {
    const base::MutexLock lock(mutex_);
    change(value_);
  }

 private:
  mutable base::Mutex mutex_;
  T value_ LLORCH_GUARDED_BY(mutex_) = {};
};

class FakeWorkers final : public Workers {
 public:
  // What a test sets; any thread.
  void put(contract::PoolWorker worker);
  void fail_starts(Error error);
  std::vector<std::string> calls() const;  // "start cpu m", "stop worker-cpu-0", …
  contract::StartWorkerRequest last_start() const;

  Result<contract::PoolWorker> start_worker(const contract::StartWorkerRequest& request) override;
  Result<contract::PoolWorker> stop_worker(std::string_view id,
                                           std::optional<std::chrono::seconds> patience) override;
  Result<contract::PoolWorker> restart_worker(std::string_view id) override;
  Status worker_ready(const contract::ReadyCallback& callback, std::string_view mark) override;
  std::vector<contract::PoolWorker> workers() const override;
  Result<contract::PoolWorker> worker(std::string_view id) const override;
  bool uses_model(std::string_view model) const override;
  void stop_all(const std::function<void(int running)>& on_progress) override;

 private:
  contract::PoolWorker* find(std::string_view id) LLORCH_REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  std::vector<contract::PoolWorker> workers_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ LLORCH_GUARDED_BY(mutex_);
  contract::StartWorkerRequest last_start_ LLORCH_GUARDED_BY(mutex_);
  std::optional<Error> start_error_ LLORCH_GUARDED_BY(mutex_);
};

contract::PoolWorker a_worker(std::string id, contract::PoolWorkerState state);

// A download as a test scripts it: waits for steps.
class Script {
 public:
  void say(const contract::DownloadEvent& event);
  void succeed();
  void fail(Error error);
  bool wait_until_begun();
  // The work itself.
  Result<std::monostate> run(const contract::OnDownloadEvent& on_event, std::stop_token stop);

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<contract::DownloadEvent> events_ LLORCH_GUARDED_BY(mutex_);
  std::optional<Result<std::monostate>> end_ LLORCH_GUARDED_BY(mutex_);
  bool begun_ LLORCH_GUARDED_BY(mutex_) = false;
};

// The API over a fake pool in a folder of its own.
struct FakePool {
  explicit FakePool(const RouteSettings& settings = {}, const DownloadsOptions& options = {});

  std::string ask(std::string_view request) const;  // the whole response of one request
  std::string get(std::string_view path) const;
  std::string send(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view content_type = "application/json") const;

  llorch::test::TempDir folder;
  base::Home home;
  FakeWorkers workers;
  // What the functions of PoolServices do, and what they were asked.
  Shared<contract::HostInfo> host;
  Shared<std::function<Result<std::vector<MemoryPlan>>(const contract::ModelEntry&,
                                                       const PlanRequest&)>>
      plan;
  Script script;
  Shared<std::vector<catalog::DownloadRequest>> download_requests;
  Shared<std::vector<catalog::VerifyRequest>> verify_requests;
  Shared<catalog::VerifyReport> report;
  std::atomic<PoolPhase> phase = PoolPhase::Serving;
  std::atomic<bool> shutdown_requested = false;

  Downloads downloads;
  http::WorkThreads threads{2, 64};
  StateBoard board{1'000};
  Fence fence;
  SpeedBook speeds{{}};
  std::unique_ptr<http::Server> server;

 private:
  PoolServices services();
};

}  // namespace llorch::pool::test
