// What a worker's record and the notes beside it say, read into facts. Private to pool/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "contract/pool_info.h"
#include "pool/worker_policy.h"
#include "pool/worker_record.h"

namespace llorch::pool {

// How long a worker may take until it is ready.
std::chrono::milliseconds ready_patience(std::int64_t model_bytes, const PoolTiming& timing);

// The facts of a worker as its record has them, and how its processes ended when they have.
WorkerFacts facts_of(const WorkerRecord& record, TimePoint now, const PoolTiming& timing);
EndFacts find_end(const std::filesystem::path& file, const WorkerRecord& record);
// The record's worker with what the facts say about it.
contract::PoolWorker describe_worker(const WorkerRecord& record, const WorkerFacts& facts);

// The end of the worker's log, without what an earlier worker of the same id left.
std::vector<std::string> own_last_lines(const WorkerRecord& record);

}  // namespace llorch::pool
