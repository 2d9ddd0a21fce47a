// The RMS norm of a row, as the norm op computes it and as products do that compute it by
// themselves: one order of sums, eight warps, whatever else a block has.
#pragma once

#include "compute/cuda/launch.cuh"
#include "compute/cuda/rounded_rows.cuh"

namespace llorch::compute::cuda {

inline constexpr int kNormWarps = 8;
inline constexpr int kNormThreads = kNormWarps * kWarpThreads;

// Sum of the values of the first eight warps; every thread gets it, and all of the block call.
__device__ inline float sum_of_eight_warps(float value) {
  __shared__ float partial[kNormWarps];
  for (int step = kWarpThreads / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  __syncthreads();  // the readers of an earlier call are done
  if (threadIdx.x < kNormThreads && threadIdx.x % kWarpThreads == 0)
    partial[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  float sum = partial[0];
  for (int warp = 1; warp < kNormWarps; ++warp) sum += partial[warp];
  return sum;
}

__device__ inline float rms_root(float squares, std::int64_t dim, float epsilon) {
  return sqrtf(sum_of_eight_warps(squares) / static_cast<float>(dim) + epsilon);
}

// The root of one head's mean square: a warp's lanes, all of which call.
__device__ inline float head_root(const float* x, std::int64_t dim, float epsilon) {
  float squares = 0;
  for (std::int64_t i = threadIdx.x % kWarpThreads; i < dim; i += kWarpThreads)
    squares = fmaf(x[i], x[i], squares);
  for (int step = kWarpThreads / 2; step > 0; step /= 2)
    squares += __shfl_xor_sync(0xFFFFFFFFU, squares, step);
  return sqrtf(squares / static_cast<float>(dim) + epsilon);
}

// A thread's gains of a row of at most 2,048 values. They are weights: there before any kernel.
inline constexpr int kHold = 8;
struct Gains {
  float values[kHold];
  __device__ Gains(const float* gain, int dim) {
#pragma unroll
    for (int h = 0; h < kHold; ++h) {
      const int i = static_cast<int>(threadIdx.x) + h * kNormThreads;
      values[h] = threadIdx.x < kNormThreads && i < dim ? gain[i] : 0.0F;
    }
  }
};

// A row of at most 2,048 values, which stay in registers from the sum to the end. `dim` is a
// multiple of 64. Ends with all of the block having it.
__device__ inline void norm_into_shared(const float* x, const Gains& gains, int dim, float epsilon,
                                        const RoundedRows& into, int row) {
  float v[kHold];
  float squares = 0;
  const bool takes_part = threadIdx.x < kNormThreads;
#pragma unroll
  for (int h = 0; h < kHold; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * kNormThreads;
    v[h] = takes_part && i < dim ? x[i] : 0.0F;
  }
#pragma unroll
  for (int h = 0; h < kHold; ++h) squares = fmaf(v[h], v[h], squares);
  const float root = rms_root(squares, dim, epsilon);
#pragma unroll
  for (int h = 0; h < kHold; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * kNormThreads;
    if (takes_part && i < dim) into.put(row, i, v[h] / root * gains.values[h]);
  }
  __syncthreads();
}

}  // namespace llorch::compute::cuda
