// What the files of Pools share. Private to them.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "base/log.h"
#include "orchestrator/pools.h"

namespace llorch::orchestrator {

// Shared by the poller's coroutine and the owner.
struct Pools::Poll {
  fleet::HostId host;
  PoolAddress pool;
  std::atomic<bool> is_wanted = true;
  std::atomic<bool> is_answering = false;  // its newest answer was a good one
};

struct Pools::Load {
  fleet::HostId host;
  fleet::LoadPlan plan;
  PoolAddress pool;
  bool is_missing = false;       // must be fetched first
  bool tells_on_demand = false;  // the pool can be told that the worker is ours
  // Of the owner's thread.
  LoadProgress progress;
  bool was_accident = false;              // its failure, see pool_report.h
  std::string worker;                     // once the pool has named it
  std::vector<std::string> known_before;  // workers that were there when it was ordered
};

// One answer of a pool.
struct Pools::Report {
  contract::PoolState state;
  std::vector<contract::FleetLoad> downloads;
};

inline http::Task<void> pause_for(std::chrono::milliseconds time) {
  http::Waker waker;
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) co_await waker.wait_until(until);
}

inline const base::Logger& pools_logger() {
  static const base::Logger instance("orchestrator");
  return instance;
}

}  // namespace llorch::orchestrator
