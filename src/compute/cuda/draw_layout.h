// The memory that drawing tokens takes.
#pragma once

#include <cstdint>

namespace llorch::compute::cuda {

// What drawing tokens keeps of each row: the best of some blocks, and the sums of some chunks or
// the weights and counts of some bins.
inline constexpr int kDrawBlocks = 64;
inline constexpr int kDrawChunksMax = 512;
inline constexpr int kChoiceBins = 640;
constexpr std::int64_t draw_bytes(std::int64_t rows) {
  return rows * (kDrawBlocks + 2 * kChoiceBins) * 8;
}

}  // namespace llorch::compute::cuda
