// From the projections of a step to what attention reads, in one kernel: norm of heads, rotation,
// and keys and values into their slots.
#include "compute/cuda/cache_value.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/row_norm.cuh"

namespace llorch::compute::cuda {
namespace {

struct Placed {
  float* heads[3];  // q, k, v: (rows, heads, head_dim)
  std::int64_t strides[3];
  const float* norms[2];  // of q and k, or null
  float epsilon;
  const float* angles;  // (rows, 2 · pairs), or null
  std::int64_t angle_stride;
  std::int64_t pairs;
  RopeStyle style;
  const std::int32_t* slots;  // (rows)
  CacheShape keys;
  CacheShape values;
  std::int64_t rows;
  std::int64_t q_heads;
};

// What a lane of a warp does to its head. The roundings are those of the ops one by one.
__device__ void norm_and_turn(const Placed& args, int kind, std::int64_t row, float* x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const std::int64_t dim = args.keys.head_dim;
  if (args.norms[kind] != nullptr) {
    const float root = head_root(x, dim, args.epsilon);
    __syncwarp();
    for (std::int64_t i = lane; i < dim; i += kWarpThreads)
      x[i] = x[i] / root * args.norms[kind][i];
    __syncwarp();
  }
  if (args.angles == nullptr) return;
  const float* angles = args.angles + row * args.angle_stride;
  for (std::int64_t i = lane; i < args.pairs; i += kWarpThreads) {
    const RopePair pair = rope_pair(args.style, i, args.pairs);
    const float cosine = angles[i];
    const float sine = angles[args.pairs + i];
    const float a = x[pair.first];
    const float b = x[pair.second];
    x[pair.first] = a * cosine - b * sine;
    x[pair.second] = a * sine + b * cosine;
  }
  __syncwarp();
}

// A warp for each head of a row: those of q, then of k, then of v.
template <class Cache>
__global__ void place_heads_kernel(Placed args, Cache keys, Cache values) {
  after_previous();
  const std::int64_t kv_heads = args.keys.kv_heads;
  const std::int64_t per_row = args.q_heads + 2 * kv_heads;
  const std::int64_t index = global_thread() / kWarpThreads;
  if (index >= args.rows * per_row) return;
  const std::int64_t row = index / per_row;
  std::int64_t head = index % per_row;
  int kind = 0;
  if (head >= args.q_heads) {
    head -= args.q_heads;
    kind = head < kv_heads ? 1 : 2;
    head %= kv_heads;
  }
  const std::int64_t dim = args.keys.head_dim;
  float* x = args.heads[kind] + row * args.strides[kind] + head * dim;
  if (kind < 2) norm_and_turn(args, kind, row, x);
  if (kind == 0) return;
  const CacheShape& shape = kind == 1 ? args.keys : args.values;
  const Cache& cache = kind == 1 ? keys : values;
  const std::int64_t slot = args.slots[row];
  require(slot >= 0 && slot < shape.blocks * shape.block_tokens);
  const std::int64_t at =
      cache_offset(shape, slot / shape.block_tokens, head, slot % shape.block_tokens);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (std::int64_t i = lane * Cache::kTogether; i < dim; i += kWarpThreads * Cache::kTogether)
    cache.store(at + i, x + i);
}

}  // namespace

void launch_place_heads(const PlaceHeadsArgs& args, const Queue& queue) {
  const Placed placed{
      .heads = {static_cast<float*>(args.q.data), static_cast<float*>(args.k.data),
                static_cast<float*>(args.v.data)},
      .strides = {args.q.row_stride, args.k.row_stride, args.v.row_stride},
      .norms = {static_cast<const float*>(args.q_norm.data),
                static_cast<const float*>(args.k_norm.data)},
      .epsilon = args.epsilon,
      .angles = static_cast<const float*>(args.angles.data),
      .angle_stride = args.angles.row_stride,
      .pairs = args.angles ? args.angles.dims[1] / 2 : 0,
      .style = args.style,
      .slots = static_cast<const std::int32_t*>(args.slots.data),
      .keys = cache_shape(args.cache.keys),
      .values = cache_shape(args.cache.values),
      .rows = args.q.rows(),
      .q_heads = args.q.dims[1],
  };
  const std::int64_t warps = placed.rows * (placed.q_heads + 2 * placed.keys.kv_heads);
  with_cache(args.cache.keys, [&](auto keys) {
    using Cache = decltype(keys);
    const Cache values{static_cast<decltype(keys.data)>(args.cache.values.data)};
    launch("place_heads", place_heads_kernel<Cache>, queue,
           ceil_div(warps * kWarpThreads, kBlockThreads), 1, kBlockThreads, placed, keys, values);
  });
}

}  // namespace llorch::compute::cuda
