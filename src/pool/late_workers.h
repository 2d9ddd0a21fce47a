// The workers of a manager that is not there yet: the server must listen before the manager starts,
// because workers are told where to report. Private to pool/.
#pragma once

#include <atomic>
#include <string_view>

#include "pool/workers.h"

namespace llorch::pool {

// Until set() everything is Unavailable and nothing is there. Any thread.
class LateWorkers final : public Workers {
 public:
  // Once; `workers` outlives every call.
  void set(Workers& workers) { workers_ = &workers; }

  Result<contract::PoolWorker> start_worker(const contract::StartWorkerRequest& request) override {
    Workers* workers = workers_;
    return workers != nullptr ? workers->start_worker(request) : not_yet();
  }
  Result<contract::PoolWorker> stop_worker(std::string_view id,
                                           std::optional<std::chrono::seconds> patience) override {
    Workers* workers = workers_;
    return workers != nullptr ? workers->stop_worker(id, patience) : not_yet();
  }
  Result<contract::PoolWorker> restart_worker(std::string_view id) override {
    Workers* workers = workers_;
    return workers != nullptr ? workers->restart_worker(id) : not_yet();
  }
  Status worker_ready(const contract::ReadyCallback& callback, std::string_view mark) override {
    Workers* workers = workers_;
    return workers != nullptr ? workers->worker_ready(callback, mark) : Status(not_yet().error());
  }
  std::vector<contract::PoolWorker> workers() const override {
    const Workers* workers = workers_;
    return workers != nullptr ? workers->workers() : std::vector<contract::PoolWorker>();
  }
  Result<contract::PoolWorker> worker(std::string_view id) const override {
    const Workers* workers = workers_;
    return workers != nullptr ? workers->worker(id) : not_yet();
  }
  bool uses_model(std::string_view model) const override {
    const Workers* workers = workers_;
    return workers == nullptr || workers->uses_model(model);  // nobody knows: better not
  }
  void stop_all(const std::function<void(int running)>& on_progress) override {
    if (Workers* workers = workers_) workers->stop_all(on_progress);
  }

 private:
  static Result<contract::PoolWorker> not_yet() {
    return Error{ErrorCode::Unavailable, "the pool manager is starting; try again"};
  }

  std::atomic<Workers*> workers_ = nullptr;
};

}  // namespace llorch::pool
