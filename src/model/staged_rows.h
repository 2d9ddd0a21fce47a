// What of a plan's rows and tables goes to the device as whole numbers. Private to model/.
#pragma once

#include <cstdint>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/kv_storage.h"

namespace llorch::model {

// Entries for each sequence's blocks: enough for the longest of the step, and few different numbers
// in the life of a sequence. A whole context for each would be most of what a step uploads.
std::int64_t widest_table(const BatchPlan& plan, std::int32_t blocks_max);

// Of all rows the token, the position and the slot in the cache, one list after the other. Awaited
// tokens are places among `num_found` that the step before found.
void stage_rows(const BatchPlan& plan, const ModelConfig& config, const KvStorage& cache,
                std::int64_t num_found, std::vector<std::int32_t>& staging);

}  // namespace llorch::model
