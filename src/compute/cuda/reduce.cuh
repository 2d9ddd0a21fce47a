// Sums and maxima over a warp and over a block, always in the same order: no atomics, no dependence
// on what else runs.
#pragma once

#include "compute/cuda/launch.cuh"

namespace llorch::compute::cuda {

// Every lane gets the result; all 32 lanes must call.
__device__ inline float warp_sum(float value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  }
  return value;
}

__device__ inline float warp_max(float value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

// Every thread gets the result; all threads of the block must call, kThreads of them.
template <int kThreads>
__device__ float block_sum(float value) {
  constexpr int kWarps = kThreads / kWarpThreads;
  __shared__ float partial[kWarps];
  value = warp_sum(value);
  __syncthreads();  // The readers of an earlier call are done.
  if (threadIdx.x % kWarpThreads == 0) partial[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  float sum = partial[0];
  for (int warp = 1; warp < kWarps; ++warp) sum += partial[warp];
  return sum;
}

template <int kThreads>
__device__ float block_max(float value) {
  constexpr int kWarps = kThreads / kWarpThreads;
  __shared__ float partial[kWarps];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % kWarpThreads == 0) partial[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  float max = partial[0];
  for (int warp = 1; warp < kWarps; ++warp) max = fmaxf(max, partial[warp]);
  return max;
}

}  // namespace llorch::compute::cuda
