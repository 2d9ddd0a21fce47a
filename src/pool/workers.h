// Workers: everything that can be asked of this host's workers. The seam between the API and the
// manager; tests of the API put a recording fake behind it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/pool_info.h"
#include "contract/worker_info.h"

namespace llorch::pool {

// Any thread may call everything, but start_worker and restart_worker block for as long as a memory
// plan takes (some milliseconds) and stop_all for as long as it takes: not on an io thread.
class Workers {
 public:
  virtual ~Workers() = default;

  // Checks everything that can be checked (model whole and here, backend and GPU there, memory plan
  // fits), then spawns. The answer is a worker in state starting.
  virtual Result<contract::PoolWorker> start_worker(
      const contract::StartWorkerRequest& request) = 0;
  // Drains, then SIGTERM, then SIGKILL, then sees that the memory is back. Answers at once with
  // state draining; a worker that has ended is forgotten. Idempotent.
  // `patience`: how long what it runs may go on; none: as PoolTiming has it. Asked again with one
  // it counts anew.
  virtual Result<contract::PoolWorker> stop_worker(
      std::string_view id, std::optional<std::chrono::seconds> patience = std::nullopt) = 0;
  // Stop, then start with the same request under the same id.
  virtual Result<contract::PoolWorker> restart_worker(std::string_view id) = 0;
  // `mark`: what the caller proves itself with. Forbidden when that is not what the worker was
  // started with; the address it names is not believed.
  virtual Status worker_ready(const contract::ReadyCallback& callback, std::string_view mark) = 0;

  virtual std::vector<contract::PoolWorker> workers() const = 0;
  virtual Result<contract::PoolWorker> worker(std::string_view id) const = 0;
  // Whether a worker that is not ended uses this model.
  virtual bool uses_model(std::string_view model) const = 0;

  // A pool that is stopped on purpose: stops every worker and waits for it. `on_progress` gets the
  // number still running.
  virtual void stop_all(const std::function<void(int running)>& on_progress) = 0;
};

// The models that workers run which have not ended.
inline std::vector<std::string> running_models(const std::vector<contract::PoolWorker>& workers) {
  std::vector<std::string> models;
  for (const contract::PoolWorker& worker : workers) {
    if (worker.state < contract::PoolWorkerState::Stopped) models.push_back(worker.model);
  }
  return models;
}

}  // namespace llorch::pool
