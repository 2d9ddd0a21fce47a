// What a step takes of a CUDA device, as a function of numbers alone: a plan is made without one.
#pragma once

#include <fmt/format.h>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute::cuda {

inline constexpr std::int64_t kRowsMax = 65535;  // the second dimension of a grid
// As Backend::step_rows.
inline constexpr std::int32_t kStepRows = 64;

// Bytes of the workspace that reserve() makes: none, because kernels keep what they need in shared
// memory and registers. Fails where a step is more than the kernels can be launched for.
inline Result<std::int64_t> workspace_bytes(const StepLimits& limits) {
  if (limits.rows > kRowsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("steps of {} rows, at most {} are possible", limits.rows, kRowsMax)};
  }
  return 0;
}

}  // namespace llorch::compute::cuda
