// Causal attention over the paged cache: one block per row and query head, the softmax kept running
// over chunks of keys, so that any context length works in a fixed piece of shared memory.
#include "compute/cuda/cache_value.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/reduce.cuh"
#include "compute/cuda/tensor_core.cuh"

namespace llorch::compute::cuda {
namespace {

// One thread per key of a chunk while weights are computed.
constexpr int kThreads = 128;
constexpr int kChunkKeys = kThreads;
constexpr int kWarps = kThreads / kWarpThreads;

// A Q8_0 cache whose numbers are rounded to halves, as the tiled kernels open it.
struct RoundedCache : QuantCache {
  __device__ float at(std::int64_t index) const {
    return __half2float(__ushort_as_half(half_bits(QuantCache::at(index))));
  }
};

struct Attend {
  const float* q;  // (rows, heads, head_dim)
  std::int64_t q_stride;
  CacheShape keys;
  CacheShape values;
  RowPlaces places;
  float scale;
  float softcap;
  std::int64_t window;
  float* out;  // (rows, heads, head_dim)
  std::int64_t out_stride;
  float* scores;  // (rows, heads, keys_max), or null
  std::int64_t scores_stride;
  std::int64_t keys_max;
  std::int64_t heads;
  bool rounds_queries;  // to halves
};

// What one block works on.
struct Place {
  std::int64_t kv_head;
  const std::int32_t* table;  // this sequence's blocks
  std::int64_t first;         // keys first..last are seen
  std::int64_t last;
  float* scores;  // this row's and head's (keys_max), or null
};

__device__ Place find_place(const Attend& args, std::int64_t row, std::int64_t head) {
  const std::int64_t position = args.places.positions[row];
  const std::int64_t sequence = args.places.sequences[row];
  require(sequence >= 0 && sequence < args.places.num_sequences);
  require(position >= 0 && position / args.keys.block_tokens < args.places.blocks_max);
  require(args.scores == nullptr || position < args.keys_max);
  return {.kv_head = head / (args.heads / args.keys.kv_heads),
          .table = args.places.block_tables + sequence * args.places.table_stride,
          .first = first_visible(position, args.window),
          .last = position,
          .scores = args.scores == nullptr
                        ? nullptr
                        : args.scores + row * args.scores_stride + head * args.keys_max};
}

__device__ std::int64_t offset_of(const CacheShape& cache, const Place& place, std::int64_t key) {
  const std::int64_t block = place.table[key / cache.block_tokens];
  require(block >= 0 && block < cache.blocks);
  return cache_offset(cache, block, place.kv_head, key % cache.block_tokens);
}

// Scores of keys begin..end - 1 into `chunk`: a warp per key, its lanes over the head's values.
template <class Cache>
__device__ void score_chunk(const Attend& args, const Place& place, Cache keys, const float* q,
                            std::int64_t begin, std::int64_t end, float* chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (std::int64_t key = begin + threadIdx.x / kWarpThreads; key < end; key += kWarps) {
    const std::int64_t at = offset_of(args.keys, place, key);
    float score = 0;
    for (std::int64_t i = lane; i < args.keys.head_dim; i += kWarpThreads) {
      score = fmaf(q[i], keys.at(at + i), score);
    }
    score = warp_sum(score) * args.scale;
    if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
    if (lane != 0) continue;
    chunk[key - begin] = score;
    if (place.scores != nullptr) place.scores[key] = score;
  }
}

__device__ void mask_scores(const Attend& args, const Place& place) {
  for (std::int64_t key = threadIdx.x; key < args.keys_max; key += kThreads) {
    if (key < place.first || key > place.last) place.scores[key] = -INFINITY;
  }
}

// Each thread owns values i = thread, thread + 128, … of q, sums and out; `chunk` belongs to all.
template <class Cache>
__global__ void attention_kernel(Attend args, Cache keys, Cache values) {
  __shared__ float q[kHeadDimMax];
  __shared__ float sums[kHeadDimMax];
  __shared__ float chunk[kChunkKeys];
  after_previous();
  const std::int64_t head_dim = args.keys.head_dim;
  const std::int64_t row = blockIdx.x / args.heads;
  const std::int64_t head = blockIdx.x % args.heads;
  const Place place = find_place(args, row, head);
  for (std::int64_t i = threadIdx.x; i < head_dim; i += kThreads) {
    const float value = args.q[row * args.q_stride + head * head_dim + i];
    q[i] = args.rounds_queries ? __half2float(__ushort_as_half(half_bits(value))) : value;
    sums[i] = 0;
  }
  if (place.scores != nullptr) mask_scores(args, place);

  float largest = -INFINITY;
  float total = 0;
  for (std::int64_t begin = place.first; begin <= place.last; begin += kChunkKeys) {
    const std::int64_t end = begin + kChunkKeys <= place.last ? begin + kChunkKeys : place.last + 1;
    const auto num_keys = static_cast<int>(end - begin);
    __syncthreads();  // q is there; the chunk before was read.
    score_chunk(args, place, keys, q, begin, end, chunk);
    __syncthreads();
    const bool has_key = static_cast<int>(threadIdx.x) < num_keys;
    const float score = has_key ? chunk[threadIdx.x] : -INFINITY;
    const float new_largest = fmaxf(largest, block_max<kThreads>(score));
    const float shrink = expf(largest - new_largest);
    const float weight = has_key ? expf(score - new_largest) : 0.0F;
    total = fmaf(total, shrink, block_sum<kThreads>(weight));
    largest = new_largest;
    if (has_key) chunk[threadIdx.x] = weight;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < head_dim; i += kThreads) {
      float sum = sums[i] * shrink;
      for (int key = 0; key < num_keys; ++key) {
        const std::int64_t at = offset_of(args.values, place, begin + key);
        sum = fmaf(chunk[key], values.at(at + i), sum);
      }
      sums[i] = sum;
    }
  }
  for (std::int64_t i = threadIdx.x; i < head_dim; i += kThreads) {
    args.out[row * args.out_stride + head * head_dim + i] = sums[i] / total;
  }
}

}  // namespace

void launch_attention(const AttentionArgs& args, const AttentionForm& form, const Queue& queue) {
  CHECK(args.q.dims[2] <= kHeadDimMax, "head_dim is beyond what the kernel keeps in shared memory");
  const Attend attend{
      .q = static_cast<const float*>(args.q.data),
      .q_stride = args.q.row_stride,
      .keys = cache_shape(args.cache.keys),
      .values = cache_shape(args.cache.values),
      .places = row_places(args),
      .scale = args.scale,
      .softcap = args.softcap,
      .window = args.window,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .scores = static_cast<float*>(args.scores.data),
      .scores_stride = args.scores.row_stride,
      .keys_max = args.scores.dims[2],
      .heads = args.q.dims[1],
      .rounds_queries = form.query == InputForm::F16,
  };
  const std::int64_t blocks = args.q.rows() * args.q.dims[1];
  const auto run = [&](auto keys) {
    using Cache = decltype(keys);
    Cache values = keys;
    values.data = static_cast<decltype(keys.data)>(args.cache.values.data);
    launch("attention", attention_kernel<Cache>, queue, blocks, 1, kThreads, attend, keys, values);
  };
  if (form.cache == InputForm::F16 && args.cache.keys.dtype == tensor::DType::Q8_0)
    return run(RoundedCache{{static_cast<std::uint8_t*>(args.cache.keys.data)}});
  with_cache(args.cache.keys, run);
}

}  // namespace llorch::compute::cuda
