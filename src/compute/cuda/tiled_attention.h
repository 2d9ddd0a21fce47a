// Attention on tensor cores, as launches: caches of halves or Q8_0, heads of 64, 96, 128 or 256
// values.
#pragma once

#include "compute/cuda/products.h"
#include "compute/cuda/queue.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

// Keys are cut at absolute positions: tiles of 64, splits of 128.
inline constexpr int kKeyTile = 64;
inline constexpr int kSplitTiles = 2;
inline constexpr int kSplitKeys = kKeyTile * kSplitTiles;
inline constexpr int kGroupMax = 16;   // heads that share keys
inline constexpr int kClusterMax = 8;  // splits that are merged without memory

constexpr bool is_power_of_two(std::int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

// Whether a model's attention can go this way: a matter of shapes and of the device, never of a
// batch. `shared_bytes`: what a block may have; heads of 256 want more than some cards have.
inline bool is_tiled(const AttentionArgs& args, std::int64_t shared_bytes) {
  constexpr std::int64_t kSharedOf128 = std::int64_t{80} << 10;
  constexpr std::int64_t kSharedOf256 = std::int64_t{146} << 10;
  const std::int64_t head_dim = args.q.dims[2];
  const tensor::DType dtype = args.cache.keys.dtype;
  return (dtype == tensor::DType::F16 || dtype == tensor::DType::Q8_0) &&
         (head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256) &&
         shared_bytes >= (head_dim == 256 ? kSharedOf256 : kSharedOf128) &&
         args.q.dims[1] / args.cache.keys.dims[1] <= kGroupMax &&
         is_power_of_two(args.cache.keys.dims[2]);
}

// Splits that rows up to this position have, rounded up so that few numbers occur.
constexpr int splits_for(std::int64_t last_position) {
  int splits = 1;
  while (std::int64_t{splits} * kSplitKeys <= last_position) splits *= 2;
  return splits;
}

// Memory for rows with more splits than a cluster has blocks.
struct SplitWorkspace {
  float* parts = nullptr;
  std::int64_t floats = 0;
  int* tickets = nullptr;  // zero between calls
  std::int64_t num_tickets = 0;
  bool has_clusters = false;
};

void launch_tiled_attention(const AttentionArgs& args, const RoundedTarget& rounded,
                            const SplitWorkspace& workspace, const Queue& queue);

}  // namespace llorch::compute::cuda
