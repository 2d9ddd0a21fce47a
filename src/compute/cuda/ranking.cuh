// What drawing and choosing tokens share: the largest of each row, and the weights of the others.
#pragma once

#include "compute/cuda/draw_layout.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/logit_rank.cuh"

namespace llorch::compute::cuda {

using Sum = unsigned long long;

struct Ranked {
  const float* x;  // (rows, dim)
  std::int64_t x_stride;
  int dim;
  Sum* ranks;    // (rows, kDrawBlocks)
  Sum* cleared;  // (rows, num_cleared): what kernels behind want zero
  int num_cleared;
};

// The weight of a logit, every operation rounded as it is written: engine/softmax.cc.
struct Weigher {
  float max;
  float factor;
  __device__ static Weigher at(float max, float temperature) {
    return {max, fminf(__fdiv_rn(1.44269504F, temperature), 1e30F)};
  }
  __device__ Sum operator()(float x) const {
    constexpr float kUnits = 0x1.0p40F;
    constexpr float kRound = 12582912.0F;
    float t = __fmul_rn(__fsub_rn(x, max), factor);
    t = t > -100.0F ? t : -100.0F;
    const float shifted = __fadd_rn(t, kRound);
    const float f = __fsub_rn(t, __fsub_rn(shifted, kRound));
    float p = __fadd_rn(__fmul_rn(f, kUnits * 1.33813021e-3F), kUnits * 9.66636837e-3F);
    p = __fadd_rn(__fmul_rn(p, f), kUnits * 5.55038117e-2F);
    p = __fadd_rn(__fmul_rn(p, f), kUnits * 2.40223497e-1F);
    p = __fadd_rn(__fmul_rn(p, f), kUnits * 6.93147182e-1F);
    p = __fadd_rn(__fmul_rn(p, f), kUnits);
    return __float2ull_rz(__uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23)));
  }
};

__device__ inline Sum warp_largest(Sum value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    const Sum other = __shfl_xor_sync(0xFFFFFFFFU, value, step);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline Sum warp_total(Sum value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  return value;
}

// kDrawBlocks blocks for each row. A template, so that several files may have it.
template <int kThreads = kBlockThreads>
__global__ void rank_kernel(Ranked args) {
  after_previous();
  __shared__ Sum warps[kThreads / kWarpThreads];
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  for (int i = first; i < args.num_cleared; i += kDrawBlocks * kThreads)
    args.cleared[blockIdx.y * args.num_cleared + i] = 0;
  const float* x = args.x + blockIdx.y * args.x_stride;
  Sum mine = 0;
  for (int i = first; i < args.dim; i += kDrawBlocks * kThreads) {
    const Sum found = rank_of(x[i], i);
    mine = found > mine ? found : mine;
  }
  mine = warp_largest(mine);
  if (threadIdx.x % kWarpThreads == 0) warps[threadIdx.x / kWarpThreads] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const Sum other : warps) mine = other > mine ? other : mine;
  args.ranks[blockIdx.y * kDrawBlocks + blockIdx.x] = mine;
}

// The best of a row, in every thread.
__device__ inline Sum best_of(const Ranked& args, int row) {
  static_assert(kDrawBlocks == 2 * kWarpThreads);
  const Sum* ranks = args.ranks + row * kDrawBlocks + threadIdx.x % kWarpThreads;
  const Sum low = ranks[0];
  const Sum high = ranks[kWarpThreads];
  return warp_largest(low > high ? low : high);
}

}  // namespace llorch::compute::cuda
