// Tokens out of logits: the largest, or the one that a draw falls on. Weights are whole numbers in
// units of 2^-40 (ops.h), so that their sums are the same in any order.
#include <algorithm>

#include "compute/cuda/found_ids.h"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/ranking.cuh"

namespace llorch::compute::cuda {
namespace {

struct Drawn {
  Ranked ranked;
  const float* temperatures;   // (rows)
  const std::uint32_t* draws;  // (rows, 2): low half, high half
  std::int32_t* out;           // (rows)
  Sum* sums;                   // (rows, kDrawChunksMax)
  int chunk;                   // ids that are summed together
  int num_chunks;
};

// A block sums a chunk of ids.
__global__ void weigh_kernel(Drawn args) {
  after_previous();
  __shared__ Sum warps[kBlockThreads / kWarpThreads];
  const int row = static_cast<int>(blockIdx.y);
  const Sum best = best_of(args.ranked, row);
  if (args.temperatures[row] == 0 || !is_token(best)) return;
  const Weigher weigh = Weigher::at(value_of(best), args.temperatures[row]);
  const float* x = args.ranked.x + row * args.ranked.x_stride;
  const int begin = static_cast<int>(blockIdx.x) * args.chunk;
  const int end = min(args.ranked.dim, begin + args.chunk);
  Sum sum = 0;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kBlockThreads)
    sum += weigh(x[i]);
  sum = warp_total(sum);
  if (threadIdx.x % kWarpThreads == 0) warps[threadIdx.x / kWarpThreads] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  Sum total = 0;
  for (const Sum part : warps) total += part;
  args.sums[row * kDrawChunksMax + blockIdx.x] = total;
}

// Where a running sum passes `target`: which of the block's threads' sums, and what is left of the
// target before it. All threads call with their own sums, in order.
__device__ int find_thread(Sum mine, Sum target, Sum& rest) {
  __shared__ Sum ends[kBlockThreads];
  __shared__ int found;
  __shared__ Sum before;
  // One thread adds up: 256 numbers in shared memory.
  ends[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    Sum passed = 0;
    int thread = 0;
    while (thread + 1 < kBlockThreads && passed + ends[thread] <= target) passed += ends[thread++];
    found = thread;
    before = passed;
  }
  __syncthreads();
  rest = target - before;
  const int result = found;
  __syncthreads();
  return result;
}

// A block for each row.
__global__ void find_kernel(Drawn args) {
  after_previous();
  const int row = static_cast<int>(blockIdx.x);
  const Sum best = best_of(args.ranked, row);
  if (args.temperatures[row] == 0 || !is_token(best)) {
    if (threadIdx.x == 0) args.out[row] = is_token(best) ? place_of(best) : -1;
    return;
  }
  // Chunks: a thread has two neighbours.
  static_assert(kDrawChunksMax == 2 * kBlockThreads);
  const Sum* sums = args.sums + row * kDrawChunksMax;
  const int first = static_cast<int>(threadIdx.x) * 2;
  const Sum low = first < args.num_chunks ? sums[first] : 0;
  const Sum high = first + 1 < args.num_chunks ? sums[first + 1] : 0;
  __shared__ Sum total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, low + high);
  __syncthreads();
  const Sum draw = args.draws[2 * row] | (static_cast<Sum>(args.draws[2 * row + 1]) << 32);
  constexpr int kDrawBits = 53;
  const Sum target = (__umul64hi(total, draw) << (64 - kDrawBits)) | ((total * draw) >> kDrawBits);
  Sum rest = 0;
  const int pair = find_thread(low + high, target, rest);
  int chunk = pair * 2;
  if (chunk + 1 < args.num_chunks && rest >= sums[chunk]) rest -= sums[chunk++];
  // Ids of the chunk: each thread has neighbours too.
  const Weigher weigh = Weigher::at(value_of(best), args.temperatures[row]);
  const float* x = args.ranked.x + row * args.ranked.x_stride;
  const int each = (args.chunk + kBlockThreads - 1) / kBlockThreads;
  const int end = min(args.ranked.dim, (chunk + 1) * args.chunk);
  const auto first_of = [&](int thread) { return min(end, chunk * args.chunk + thread * each); };
  Sum mine = 0;
  for (int i = first_of(static_cast<int>(threadIdx.x));
       i < first_of(static_cast<int>(threadIdx.x) + 1); ++i)
    mine += weigh(x[i]);
  Sum left = 0;
  const int thread = find_thread(mine, rest, left);
  if (static_cast<int>(threadIdx.x) != thread) return;
  int id = first_of(thread);
  for (Sum weight = weigh(x[id]); left >= weight && id + 1 < end; weight = weigh(x[id])) {
    left -= weight;
    ++id;
  }
  args.out[row] = id;
}

__global__ void fill_in_kernel(std::int32_t* ids, std::int64_t rows, const std::int32_t* found,
                               std::int64_t num_found) {
  after_previous();
  const std::int64_t row = global_thread();
  if (row >= rows || ids[row] >= 0) return;
  const std::int64_t place = -1 - ids[row];
  require(place < num_found);
  ids[row] = max(0, found[place]);
}

}  // namespace

void launch_fill_in_ids(std::int32_t* ids, std::int64_t rows, const std::int32_t* found,
                        std::int64_t num_found, const Queue& queue) {
  launch("fill_in_ids", fill_in_kernel, queue, (rows + kBlockThreads - 1) / kBlockThreads, 1,
         kBlockThreads, ids, rows, found, num_found);
}

void launch_draw(const DrawArgs& args, void* workspace, const Queue& queue) {
  const std::int64_t rows = args.x.rows();
  const auto dim = static_cast<int>(args.x.dims[1]);
  constexpr int kChunkLeast = 1024;
  const int chunk =
      std::max(kChunkLeast, static_cast<int>((dim + kDrawChunksMax - 1) / kDrawChunksMax));
  auto* words = static_cast<Sum*>(workspace);
  const Drawn drawn{
      .ranked = {.x = static_cast<const float*>(args.x.data),
                 .x_stride = args.x.row_stride,
                 .dim = dim,
                 .ranks = words,
                 .cleared = nullptr,
                 .num_cleared = 0},
      .temperatures = static_cast<const float*>(args.temperatures.data),
      .draws = static_cast<const std::uint32_t*>(args.draws.data),
      .out = static_cast<std::int32_t*>(args.out.data),
      .sums = words + rows * kDrawBlocks,
      .chunk = chunk,
      .num_chunks = (dim + chunk - 1) / chunk,
  };
  launch("draw", rank_kernel<>, queue, kDrawBlocks, rows, kBlockThreads, drawn.ranked);
  launch("draw", weigh_kernel, queue, drawn.num_chunks, rows, kBlockThreads, drawn);
  launch("draw", find_kernel, queue, rows, 1, kBlockThreads, drawn);
}

}  // namespace llorch::compute::cuda
