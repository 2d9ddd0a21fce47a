// New keys and values into their slots of the paged cache.
#include "compute/cuda/cache_value.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"

namespace llorch::compute::cuda {
namespace {

struct Stored {
  const float* from;  // (rows, kv_heads, head_dim)
  std::int64_t from_stride;
  const std::int32_t* slots;  // (rows)
  std::int64_t rows;
  CacheShape cache;
};

// One thread for the values that are stored together.
template <class Cache>
__global__ void write_kv_kernel(Stored args, Cache cache) {
  after_previous();
  const std::int64_t row_values = args.cache.kv_heads * args.cache.head_dim;
  const std::int64_t index = global_thread() * Cache::kTogether;
  if (index >= args.rows * row_values) return;
  const std::int64_t row = index / row_values;
  const std::int64_t head = index % row_values / args.cache.head_dim;
  const std::int64_t i = index % args.cache.head_dim;
  const std::int64_t slot = args.slots[row];
  require(slot >= 0 && slot < args.cache.blocks * args.cache.block_tokens);
  const std::int64_t at = cache_offset(args.cache, slot / args.cache.block_tokens, head,
                                       slot % args.cache.block_tokens);
  cache.store(at + i, args.from + row * args.from_stride + index % row_values);
}

void store(const TensorView& from, const TensorView& slots, const TensorView& view,
           const Queue& queue) {
  const Stored stored{
      .from = static_cast<const float*>(from.data),
      .from_stride = from.row_stride,
      .slots = static_cast<const std::int32_t*>(slots.data),
      .rows = from.rows(),
      .cache = cache_shape(view),
  };
  with_cache(view, [&](auto cache) {
    using Cache = decltype(cache);
    const std::int64_t threads = from.elements() / Cache::kTogether;
    launch("write_kv", write_kv_kernel<Cache>, queue, ceil_div(threads, kBlockThreads), 1,
           kBlockThreads, stored, cache);
  });
}

}  // namespace

void launch_write_kv(const WriteKvArgs& args, const Queue& queue) {
  store(args.keys, args.slots, args.cache.keys, queue);
  store(args.values, args.slots, args.cache.values, queue);
}

}  // namespace llorch::compute::cuda
