// Tokens that a step has from the one before, without the host.
#pragma once

#include <cstdint>

#include "compute/cuda/queue.h"

namespace llorch::compute::cuda {

// Backend::fill_in_ids.
void launch_fill_in_ids(std::int32_t* ids, std::int64_t rows, const std::int32_t* found,
                        std::int64_t num_found, const Queue& queue);

}  // namespace llorch::compute::cuda
