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
Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa,
                                                  InputForm input);

// Enough rows for a weight to be decoded once for many of them; more gain little.
inline constexpr std::int32_t kCpuStepRows = 64;

// What reserve() takes, as a function of numbers alone: a plan is made without a backend.
struct CpuWorkspace {
  std::int64_t inputs = 0;         // as in StepLimits
  std::int64_t thread_floats = 0;  // scratch of each thread
  std::int64_t num_threads = 0;
  std::int64_t input_floats = 0;  // the prepared input of a linear op; none where it is F32

  std::int64_t bytes() const {
    return (thread_floats * num_threads + input_floats) * static_cast<std::int64_t>(sizeof(float));
  }
};
Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads, InputForm input);

}  // namespace llorch::compute
