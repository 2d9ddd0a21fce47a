// Where things are: the index arithmetic of the kernels, apart from them so that it is tested
// without a device. Compiles as plain C++ too.
#pragma once

#include <cstdint>

#include "compute/cuda/host_device.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

LLORCH_HOST_DEVICE inline std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

// The (blocks, kv_heads, block_tokens, head_dim) cache without its memory.
struct CacheShape {
  std::int64_t blocks = 0;
  std::int64_t block_stride = 0;
  std::int64_t kv_heads = 0;
  std::int64_t block_tokens = 0;
  std::int64_t head_dim = 0;
};

inline CacheShape cache_shape(const tensor::TensorView& cache) {
  return {cache.dims[0], cache.row_stride, cache.dims[1], cache.dims[2], cache.dims[3]};
}

// What attention's rows are: places of sequences, whose blocks are in tables.
struct RowPlaces {
  const std::int32_t* positions = nullptr;     // (rows)
  const std::int32_t* sequences = nullptr;     // (rows)
  const std::int32_t* block_tables = nullptr;  // (num_sequences, blocks_max)
  std::int64_t table_stride = 0;
  std::int64_t num_sequences = 0;
  std::int64_t blocks_max = 0;
};

inline RowPlaces row_places(const AttentionArgs& args) {
  return {
      .positions = static_cast<const std::int32_t*>(args.positions.data),
      .sequences = static_cast<const std::int32_t*>(args.sequences.data),
      .block_tables = static_cast<const std::int32_t*>(args.block_tables.data),
      .table_stride = args.block_tables.row_stride,
      .num_sequences = args.block_tables.dims[0],
      .blocks_max = args.block_tables.dims[1],
  };
}

// Element offset of the head_dim values that `kv_head` keeps in place `token` of a block.
LLORCH_HOST_DEVICE inline std::int64_t cache_offset(const CacheShape& cache, std::int64_t block,
                                                    std::int64_t kv_head, std::int64_t token) {
  return block * cache.block_stride + (kv_head * cache.block_tokens + token) * cache.head_dim;
}

// The oldest position that a row at `position` sees.
LLORCH_HOST_DEVICE inline std::int64_t first_visible(std::int64_t position, std::int64_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

struct RopePair {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

// The two values of a head that frequency i of `num_frequencies` rotates.
LLORCH_HOST_DEVICE inline RopePair rope_pair(RopeStyle style, std::int64_t i,
                                             std::int64_t num_frequencies) {
  if (style == RopeStyle::Adjacent) return {2 * i, 2 * i + 1};
  return {i, i + num_frequencies};
}

}  // namespace llorch::compute::cuda
