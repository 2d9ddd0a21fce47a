// One worker of this host: its record, what is known of it, and every effect on its process.
// Private to pool/; belongs to the manager's thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/process.h"
#include "base/process_table.h"
#include "base/result.h"
#include "contract/pool_info.h"
#include "pool/pool_manager.h"
#include "pool/probe.h"
#include "pool/speed_learner.h"
#include "pool/worker_policy.h"
#include "pool/worker_record.h"

namespace llorch::pool {

struct ManagedWorker {
  WorkerRecord record;
  WorkerFacts facts;
  base::ProcessHandle keeper;     // not open: it had ended when it was found
  std::uint64_t start = 0;        // tells answers about this process from those about one before
  TimePoint launched{};           // its process, unless it was adopted
  std::uint64_t ended_order = 0;  // the smaller, the longer ago
  TimePoint ended_time{};         // with ended_order
  bool measured = false;          // its peak was kept
  double tokens_per_second = 0;
  SpeedLearner speed;
  base::ProcessMemory memory;
  std::int64_t vram_bytes = 0;

  bool is_stopped() const;
  // Of its plan, what the system still calls free.
  std::int64_t promised_vram_bytes() const;
  std::int64_t promised_host_bytes() const;
  contract::PoolWorker show() const;
  std::filesystem::path file(const PoolManagerOptions& options) const;  // of its record
  void save(const PoolManagerOptions& options) const;

  // Starts the keeper, and with it the worker. `start_number` is larger than any before.
  Status launch(const PoolManagerOptions& options, std::uint64_t start_number, TimePoint now);
  // Notes the end once no process of the worker is left, whatever it started. True while some are.
  bool look_for_end(const PoolManagerOptions& options);
  void become_ready(const PoolManagerOptions& options);
  // Its end is noted, on the disk and in the log.
  void finish(const PoolManagerOptions& options, std::uint64_t order, TimePoint now);

  // What a probe of it has to know.
  ProbeJob make_probe(ProbeJob::Kind kind, const PoolTiming& timing) const;
};

}  // namespace llorch::pool
