// The memory that drawing tokens takes.
#pragma once

#include <cstdint>

namespace llorch::compute::cuda {

// What drawing tokens keeps of each row: the best of some blocks, the sums of some chunks.
inline constexpr int kDrawBlocks = 64;
inline constexpr int kDrawChunksMax = 512;
constexpr std::int64_t draw_bytes(std::int64_t rows) {
  return rows * (kDrawBlocks + kDrawChunksMax) * 8;
}

}  // namespace llorch::compute::cuda
