// The workers of this host: who there is, what is asked of them, what is due. Belongs to the
// manager's thread; what may take long is handed to hooks and comes back as a call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_table.h"
#include "base/result.h"
#include "contract/pool_info.h"
#include "contract/worker_info.h"
#include "pool/managed_worker.h"
#include "pool/pool_manager.h"
#include "pool/probe.h"
#include "pool/worker_launch.h"
#include "pool/worker_policy.h"
#include "pool/worker_record.h"

namespace llorch::pool {

struct TableHooks {
  std::function<void(ProbeJob job)> probe;  // the answer comes through take()
  // Prepares a restart; the answer comes through take_plan().
  std::function<void(std::string id, contract::StartWorkerRequest request)> plan;
  std::function<void(contract::PoolWorker worker, std::int64_t peak_bytes)> keep_measurement;
  // How fast it was; how long it took to be ready, where `load_ms` is not 0.
  std::function<void(contract::PoolWorker worker, std::vector<SpeedSample> samples, double load_ms)>
      keep_speed;
};

class WorkerTable {
 public:
  WorkerTable(const PoolManagerOptions& options, TableHooks hooks);

  // What the manager before left, from its records.
  void adopt(TimePoint now);
  // From now on nothing is started.
  void close() { closed_ = true; }

  Result<contract::PoolWorker> spawn(const PreparedStart& start, TimePoint now);
  void take_plan(const std::string& id, const Result<PreparedStart>& plan, TimePoint now);
  // How to ask the worker that calls back who it is; NotFound and Forbidden as ready() says them.
  Result<ProbeJob> first_question(const contract::ReadyCallback& callback, std::string_view mark);
  Result<contract::PoolWorker> stop(std::string_view id,
                                    std::optional<std::chrono::seconds> patience, TimePoint now);
  Result<contract::PoolWorker> restart(std::string_view id, TimePoint now);
  Status ready(const contract::ReadyCallback& callback, std::string_view mark, TimePoint now);
  void take(const ProbeResult& result, TimePoint now);

  // Does what is due. Returns when to come again; before that when one of files() is readable.
  TimePoint advance(TimePoint now);
  std::vector<int> files() const;

  PromisedMemory promised() const;
  std::vector<contract::PoolWorker> show() const;  // the oldest first
  Result<contract::PoolWorker> show(std::string_view id) const;
  bool uses_model(std::string_view model) const;
  std::vector<std::string> running() const;  // ids of all that have not ended

 private:
  Result<std::string> choose_id(const std::string& backend) const;
  std::set<std::uint16_t> taken_ports() const;
  Status prepare_record(ManagedWorker& worker, const std::string& id, const PreparedStart& start);
  void adopt_one(const std::filesystem::path& file, TimePoint now);

  TimePoint advance_one(ManagedWorker& worker, TimePoint now);
  void perform(ManagedWorker& worker, Action action, TimePoint now);
  void spawn_again(ManagedWorker& worker, TimePoint now);
  void forget_oldest();

  ManagedWorker* find(std::string_view id);
  Result<ManagedWorker*> find_caller(const contract::ReadyCallback& callback,
                                     std::string_view mark);
  Error unknown(std::string_view id) const;

  const PoolManagerOptions& options_;
  const TableHooks hooks_;
  bool closed_ = false;
  std::uint64_t next_start_ = 0;
  std::uint64_t next_ended_ = 0;
  std::map<std::string, ManagedWorker, std::less<>> workers_;
};

}  // namespace llorch::pool
