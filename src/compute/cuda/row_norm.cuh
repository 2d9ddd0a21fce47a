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

// Divides by a root: the quotient rounded to nearest, but for denormal ones, in three operations
// for each value. What a division is compiled to asks about denormals and infinities each time.
struct Root {
  float root;
  float inverse;
  __device__ explicit Root(float value) : root(value), inverse(1.0F / value) {}
  __device__ float divide(float v) const {
    const float quotient = __fmul_rn(v, inverse);
    return __fmaf_rn(__fmaf_rn(-quotient, root, v), inverse, quotient);
  }
};

// The root of one head's mean square: a warp's lanes, all of which call.
__device__ inline float head_root(const float* x, std::int64_t dim, float epsilon) {
  float squares = 0;
  for (std::int64_t i = threadIdx.x % kWarpThreads; i < dim; i += kWarpThreads)
    squares = fmaf(x[i], x[i], squares);
  for (int step = kWarpThreads / 2; step > 0; step /= 2)
    squares += __shfl_xor_sync(0xFFFFFFFFU, squares, step);
  return sqrtf(squares / static_cast<float>(dim) + epsilon);
}

// A thread takes four values of a row at a time, kNormStep further each time, and adds their
// squares in that order.
inline constexpr int kNormStep = 4 * kNormThreads;
__device__ inline int norm_place(int h) {
  return static_cast<int>(threadIdx.x) * 4 + h * kNormStep;
}
// Zeros from `dim` on.
__device__ inline float4 load_norm(const float* x, int i, int dim) {
  if (i + 4 <= dim) return load_four(x + i);
  return make_float4(i < dim ? x[i] : 0.0F, i + 1 < dim ? x[i + 1] : 0.0F,
                     i + 2 < dim ? x[i + 2] : 0.0F, 0.0F);
}
__device__ inline float add_squares(float squares, const float4& v) {
  squares = fmaf(v.x, v.x, squares);
  squares = fmaf(v.y, v.y, squares);
  squares = fmaf(v.z, v.z, squares);
  return fmaf(v.w, v.w, squares);
}
__device__ inline float4 norm_four(const float4& v, const Root& root, const float4& gain) {
  return make_float4(root.divide(v.x) * gain.x, root.divide(v.y) * gain.y,
                     root.divide(v.z) * gain.z, root.divide(v.w) * gain.w);
}

// A thread's gains of a row of at most 2,048 values. They are weights: there before any kernel.
inline constexpr int kHold = 2;
struct Gains {
  float4 values[kHold];
  __device__ Gains(const float* gain, int dim) {
#pragma unroll
    for (int h = 0; h < kHold; ++h) {
      const bool is_there = threadIdx.x < kNormThreads && norm_place(h) < dim;
      values[h] = is_there ? load_four(gain + norm_place(h)) : make_float4(0, 0, 0, 0);
    }
  }
};

// A row of at most 2,048 values, which stay in registers from the sum to the end. `dim` is a
// multiple of 64. Ends with all of the block having it.
__device__ inline void norm_into_shared(const float* x, const Gains& gains, int dim, float epsilon,
                                        const RoundedRows& into, int row) {
  float4 v[kHold];
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHold; ++h) {
    const bool is_there = threadIdx.x < kNormThreads && norm_place(h) < dim;
    v[h] = is_there ? load_four(x + norm_place(h)) : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int h = 0; h < kHold; ++h) squares = add_squares(squares, v[h]);
  const Root root(rms_root(squares, dim, epsilon));
#pragma unroll
  for (int h = 0; h < kHold; ++h) {
    const int i = norm_place(h);
    if (threadIdx.x >= kNormThreads || i >= dim) continue;
    const float4 normed = norm_four(v[h], root, gains.values[h]);
    into.put2(row, i, normed.x, normed.y);
    into.put2(row, i + 2, normed.z, normed.w);
  }
  __syncthreads();
}

}  // namespace llorch::compute::cuda
