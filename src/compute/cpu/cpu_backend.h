// The backend for ordinary processors: vectorised kernels for the best instruction set found at run
// time, a team of threads, host memory.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute {

// num_threads >= 1. An empty isa takes the best there is; a name that this machine or build does
// not have is an error that lists those it has.
Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa);

// What reserve() takes for so many threads; fails as it does.
Result<std::int64_t> cpu_scratch_bytes(const StepLimits& limits, int num_threads);

}  // namespace llorch::compute
