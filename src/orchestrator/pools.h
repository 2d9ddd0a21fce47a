// Pools: the hosts' pool managers, polled and ordered about. One poll waits at each pool for a
// change; what it says becomes PoolSeen. Orders (load, stop) run beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "contract/fleet_api.h"
#include "contract/pool_state.h"
#include "fleet/effects.h"
#include "http/client.h"
#include "http/io_threads.h"
#include "http/work_threads.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/pool_report.h"
#include "orchestrator/ports.h"
#include "orchestrator/worker_watch.h"

namespace llorch::orchestrator {

// The host whose pool runs beside us.
inline constexpr std::string_view kLocalHost = "local";

struct PoolsOptions {
  fleet::Boot boot = 0;
  // Finds the pool of this machine, starting one where there is none; blocks.
  std::function<Result<PoolAddress>()> start_local;
  HostSteps* steps = nullptr;  // null: no other host can be reached
  // Somebody else than us started, drained or stopped a worker there. On the owner's thread.
  std::function<void(const fleet::HostId& host, const WorkerAct& act)> on_worker_act;
  std::chrono::milliseconds poll_wait{5'000};       // how long a poll waits for a change
  std::chrono::milliseconds poll_pause{1'000};      // between polls of a pool that cannot wait
  std::chrono::milliseconds look_pause{100};        // at a worker that loads
  std::chrono::milliseconds stop_patience{40'000};  // for a worker that makes room
};

// What is known of a host beside what the fleet needs; for people.
struct HostDetails {
  PoolAddress pool;
  std::string pool_id;
  std::string version;
  contract::HostInfo host;
  std::vector<contract::PoolDevice> devices;
  std::vector<std::string> labels;
};

// All but the constructor belongs to the owner's thread. The orchestrator and the threads outlive
// its coroutines: stop the IoThreads first.
class Pools : public PoolOrders {
 public:
  Pools(Orchestrator& orchestrator, http::IoThreads& io, http::WorkThreads& threads,
        PoolsOptions options);
  ~Pools() override;

  void start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) override;
  void stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) override;
  void step_host(const fleet::HostId& host, fleet::HostAction action) override;
  std::optional<PoolAddress> address_of(const fleet::HostId& host) const override;
  void look(std::function<void()> on_done) override;

  const HostDetails* find_details(const fleet::HostId& host) const;
  // Under way, also what pools do by themselves.
  std::vector<contract::FleetLoad> loads() const;
  ModelBook& models() { return models_; }

  // A pool that is reached at this address from now on. Before the start, for tests and for pools
  // that were joined.
  void connect(const fleet::HostId& host, const PoolAddress& address);
  void disconnect(const fleet::HostId& host);

 private:
  struct Poll;  // one poller: its address, and whether it is still wanted
  struct Load;  // one order to load
  struct Report;
  struct Look;  // at all pools that answer
  using LoadPtr = std::shared_ptr<Load>;
  struct Row {
    std::shared_ptr<Poll> poll;
    HostDetails details;
    std::vector<LoadPtr> loads;                  // under way
    std::vector<std::string> downloaded;         // ids of models that are on its disk
    std::vector<std::string> workers;            // that were last seen
    bool tells_on_demand = false;                // kFeatureOnDemand
    std::vector<contract::FleetLoad> downloads;  // of its own, likewise
    WorkerWatch watch;
  };

  // Coroutines; they touch nothing of the owner's.
  http::Task<void> run_poll(std::shared_ptr<Poll> poll);
  http::Task<void> run_look(std::shared_ptr<Poll> poll, std::shared_ptr<Look> look);
  http::Task<Result<json::Value>> call(http::ClientRequest request);
  http::Task<void> run_load(LoadPtr load);
  http::Task<Result<contract::PoolWorker>> perform_load(LoadPtr load);
  http::Task<Status> make_room(LoadPtr load);
  http::Task<Status> fetch_model(LoadPtr load);
  http::Task<Result<contract::PoolWorker>> await_ready(LoadPtr load, std::string worker);
  http::Task<void> run_stop(PoolAddress pool, fleet::WorkerId worker);
  http::Task<void> run_local_step(fleet::HostId host, fleet::HostAction action);
  http::Task<void> shut_down(fleet::HostId host, PoolAddress pool);
  http::ClientRequest make_request(http::Method method, const PoolAddress& pool,
                                   std::string_view path) const;

  // On the owner's thread, but note_progress.
  static Result<Report> read_report(const fleet::HostId& host, const Result<json::Value>& state);
  void take_report(const std::shared_ptr<Poll>& poll, const Report& report);
  void end_load(const LoadPtr& load, const Result<contract::PoolWorker>& worker);
  void note_progress(const LoadPtr& load, LoadProgress progress);
  void stop_local(const fleet::HostId& host);
  void note_step(const fleet::HostId& host, fleet::HostAction action,
                 const HostSteps::Outcome& outcome);
  bool is_hidden(const Row& row, const contract::PoolWorker& worker) const;

  Orchestrator& orchestrator_;
  http::IoThreads& io_;
  http::WorkThreads& threads_;
  const PoolsOptions options_;
  http::Client client_;

  // Of the owner's thread.
  std::unordered_map<fleet::HostId, Row> rows_;
  ModelBook models_;
};

}  // namespace llorch::orchestrator
