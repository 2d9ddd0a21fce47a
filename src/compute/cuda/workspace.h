// What a step takes of a CUDA device, as a function of numbers alone: a plan is made without one.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "compute/backend.h"
#include "compute/cuda/draw_layout.h"
#include "compute/cuda/packed_layout.h"

namespace llorch::compute::cuda {

inline constexpr std::int64_t kRowsMax = 65535;  // the second dimension of a grid
// As Backend::step_rows.
inline constexpr std::int32_t kStepRows = 1024;
// The piece of a matrix that waits on the device to be packed.
inline constexpr std::int64_t kPackBytes = std::int64_t{32} << 20;

// The parts of the workspace that reserve() makes, in bytes.
struct Workspace {
  std::int64_t rounded = 0;  // the input of a product in 16 bits, twice
  std::int64_t splits = 0;   // what attention over long contexts leaves before it is merged
  std::int64_t tickets = 0;  // one for each row and head that is merged so
  std::int64_t argmax = 0;   // what is largest so far, and tickets
  std::int64_t draws = 0;    // draw_bytes()
  std::int64_t bytes() const { return 2 * rounded + splits + tickets + argmax + draws; }
};

// Fails where a step is more than the kernels can be launched for.
inline Result<Workspace> plan_workspace(const StepLimits& limits) {
  if (limits.rows > kRowsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("steps of {} rows, at most {} are possible", limits.rows, kRowsMax)};
  }
  constexpr std::int64_t kAlignment = 256;
  constexpr std::int64_t kHeadsMax = 256;  // key heads of a row
  const auto aligned = [](std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  // One row of the widest heads over the whole context always has room; more rows share 64 MiB.
  constexpr std::int64_t kSplitBytes = std::int64_t{64} << 20;
  constexpr std::int64_t kQueryHeads = 64;
  const std::int64_t splits = std::max<std::int64_t>(1, limits.context / 128 + 1) * 2;
  const std::int64_t one_row = splits * kQueryHeads * (limits.head_dim + 2) * 4;
  const bool is_long = limits.context > 1024;
  return Workspace{
      .rounded = aligned(2 * rounded_elements(limits.rows, limits.inputs)),
      .splits = aligned(std::max(one_row, is_long ? kSplitBytes : one_row)),
      .tickets = aligned(limits.rows * kHeadsMax * 4),
      .argmax = aligned(limits.rows * 12),
      .draws = aligned(draw_bytes(limits.rows)),
  };
}

}  // namespace llorch::compute::cuda
