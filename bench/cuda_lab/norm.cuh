// RMS norm of rows, rounded for the product that follows: inside that product or as a kernel of its
// own, with the same bits.
#pragma once

#include "tensor_core.cuh"

namespace lab {

// Rows of floats that are normed.
struct Normed {
  const float* x;
  const float* gain;
  int dim;
  float epsilon;
  static constexpr bool kShared = true;  // a product norms them into shared memory
};

// Sum of all threads' values, in one order: eight warps take part, however many a block has.
inline constexpr int kNormWarps = 8;
inline constexpr int kNormThreads = kNormWarps * 32;
__device__ inline float sum_of_eight_warps(float sum) {
  __shared__ float sums[kNormWarps];
  if (threadIdx.x < kNormThreads) {
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  float total = 0;
  for (int i = 0; i < kNormWarps; ++i) total += sums[i];
  return total;
}

// A row of at most Hold · 1024 values, which stay in registers from the sum to the end. The bits
// follow from `dim` alone.
template <int Hold>
__device__ void norm_into(const Normed& in, const float* x, __half* out) {
  float4 v[Hold];
  float4 gain[Hold];
  float squares = 0;
  const auto at = [&](int h) { return static_cast<int>(threadIdx.x) + h * kNormThreads; };
#pragma unroll
  for (int h = 0; h < Hold; ++h) {
    const bool here = threadIdx.x < kNormThreads && at(h) < in.dim / 4;
    v[h] = here ? reinterpret_cast<const float4*>(x)[at(h)] : make_float4(0, 0, 0, 0);
    gain[h] = here ? reinterpret_cast<const float4*>(in.gain)[at(h)] : v[h];
  }
#pragma unroll
  for (int h = 0; h < Hold; ++h) {
    squares = fmaf(v[h].x, v[h].x, squares);
    squares = fmaf(v[h].y, v[h].y, squares);
    squares = fmaf(v[h].z, v[h].z, squares);
    squares = fmaf(v[h].w, v[h].w, squares);
  }
  const float mean = sum_of_eight_warps(squares) / static_cast<float>(in.dim);
  const float factor = 1.0F / sqrtf(mean + in.epsilon);
#pragma unroll
  for (int h = 0; h < Hold; ++h) {
    if (threadIdx.x >= kNormThreads || at(h) >= in.dim / 4) continue;
    auto* to = reinterpret_cast<__half2*>(out) + at(h) * 2;
    to[0] = __floats2half2_rn(v[h].x * factor * gain[h].x, v[h].y * factor * gain[h].y);
    to[1] = __floats2half2_rn(v[h].z * factor * gain[h].z, v[h].w * factor * gain[h].w);
  }
  __syncthreads();
}

// The widest row that a product norms for itself: wider ones would cost it registers.
inline constexpr int kPrologueHold = 2;
inline constexpr int kPrologueDim = kPrologueHold * 4 * kNormThreads;

// The kernel of its own: a block per row, rows of at most 4,096 values.
static __global__ void norm_rows(Normed in, __half* out) {
  wait_for_previous();
  release_next();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * in.dim;
  norm_into<4>(in, in.x + at, out + at);
}

}  // namespace lab
