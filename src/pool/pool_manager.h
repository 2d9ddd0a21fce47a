// PoolManager: owns the workers of this host. One thread holds their state; everybody else asks it.
//
// A worker is two processes: its keeper (our own program, parent of the worker: writes the log,
// notes how the worker ended, ends it when no manager has been there for a minute) and the worker
// itself, which dies with its keeper. Both outlive the manager: one that starts again finds them by
// their records (Home::workers()/<id>.json) and adopts them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "catalog/registry.h"
#include "contract/pool_info.h"
#include "contract/worker_info.h"
#include "pool/memory_plan.h"
#include "pool/pool_sources.h"
#include "pool/pool_timing.h"
#include "pool/speed_book.h"
#include "pool/workers.h"

namespace llorch::pool {

struct PoolManagerOptions {
  base::Home home;
  Planner planner;
  std::filesystem::path keeper;  // the program that has `keep RECORD`: llorch-pool
  std::string
      callback_url;  // where workers report: "http://127.0.0.1:9200/v2/internal/workers/ready"
  std::uint16_t first_port = 8000;
  PoolTiming timing;
  std::int64_t log_bytes_max = std::int64_t{8} << 20;  // one log file; three older ones are kept
  bool confine_workers = true;         // landlock and seccomp where the kernel has them
  base::Environment environment;       // workers get a few variables of it; null: none
  std::optional<PoolSources> sources;  // none: those of this host (system_sources)
  // Learns how fast models run; null: nobody does. Outlives the manager.
  SpeedBook* speeds = nullptr;
  // Hears how the workers stand whenever that may have changed, on the manager's thread.
  std::function<void(const std::vector<contract::PoolWorker>& workers)> on_look;
};

// Any thread may call everything; answers come from the owner's thread.
class PoolManager final : public Workers {
 public:
  // Takes the pool's lock (Conflict names the manager that has it), adopts what runs, and goes on.
  static Result<std::unique_ptr<PoolManager>> start(PoolManagerOptions options);
  // Lets go: workers stay and are adopted by the next manager. See stop_all.
  ~PoolManager() override;
  PoolManager(const PoolManager&) = delete;
  PoolManager& operator=(const PoolManager&) = delete;

  Result<contract::PoolWorker> start_worker(const contract::StartWorkerRequest& request) override;
  Result<contract::PoolWorker> stop_worker(
      std::string_view id, std::optional<std::chrono::seconds> patience = std::nullopt) override;
  Result<contract::PoolWorker> restart_worker(std::string_view id) override;
  Status worker_ready(const contract::ReadyCallback& callback, std::string_view mark) override;
  std::vector<contract::PoolWorker> workers() const override;
  Result<contract::PoolWorker> worker(std::string_view id) const override;
  bool uses_model(std::string_view model) const override;
  void stop_all(const std::function<void(int running)>& on_progress) override;

 private:
  class Impl;
  explicit PoolManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What the records say, for commands that work without a manager: state as last written, checked
// against the processes that really run.
std::vector<contract::PoolWorker> read_worker_records(const base::Home& home);

// By those records: which running worker uses a model. For catalog::update_model and remove_model.
catalog::FindUse find_uses(const base::Home& home);

// The keeper's whole life: `llorch-pool keep RECORD`. Returns its exit code.
int run_keeper(const std::filesystem::path& record);

}  // namespace llorch::pool
