// WorkerWatch: workers of one host that somebody else than this orchestrator started, drained or
// stopped, by what its pool's reports say. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/pool_info.h"

namespace llorch::orchestrator {

struct WorkerAct {
  std::string_view action;  // "worker.start", "worker.drain", "worker.stop"
  std::string worker;
  std::string model;
};

class WorkerWatch {
 public:
  // What changed since the report before. The first of a pool's life says what there is. A worker
  // that failed, or comes and goes between two reports, was nobody's act as far as can be seen.
  std::vector<WorkerAct> take(std::uint64_t pool_start,
                              const std::vector<contract::PoolWorker>& workers);

  // Our own orders are not told.
  void note_own_start(const std::string& worker, std::uint32_t start);
  void note_own_stop(const std::string& worker) { own_stops_.insert(worker); }
  void note_own_end() { is_ending_ = true; }  // of the whole pool

 private:
  struct Known {
    std::uint32_t start = 0;
    std::string model;
    contract::PoolWorkerState state = contract::PoolWorkerState::Starting;
  };

  std::uint64_t pool_start_ = 0;
  bool is_ending_ = false;
  std::map<std::string, Known> known_;
  std::set<std::string> own_stops_;  // of workers in known_
};

}  // namespace llorch::orchestrator
