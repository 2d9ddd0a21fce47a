// Dot products of several rows with several weight rows at once. Included once per instruction set.
//
// The promise of row independence rests on this file: every product, in whatever tile, adds its
// terms in the same order — one vector of partial sums over k, its lanes together, then the rest of
// k one by one.
#include "compute/cpu/vector_inl.h"

#if defined(LLORCH_COMPUTE_CPU_DOT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_DOT_INL_H
#undef LLORCH_COMPUTE_CPU_DOT_INL_H
#else
#define LLORCH_COMPUTE_CPU_DOT_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// sums[r * Cols + c] = x row r · w row c over k values; strides in elements. T is float, Half or
// Bfloat16.
template <int Rows, int Cols, class T>
HWY_INLINE void dot_tile(const float* HWY_RESTRICT x, std::int64_t x_stride,
                         const T* HWY_RESTRICT w, std::int64_t w_stride, std::int64_t k,
                         float* HWY_RESTRICT sums) {
  Vec partial[std::size_t{Rows}][std::size_t{Cols}];
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Cols; ++c) partial[r][c] = hn::Zero(Floats());
  }
  std::int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    Vec weights[std::size_t{Cols}];
    for (int c = 0; c < Cols; ++c) weights[c] = load(w + c * w_stride + i);
    for (int r = 0; r < Rows; ++r) {
      const Vec values = load(x + r * x_stride + i);
      for (int c = 0; c < Cols; ++c) partial[r][c] = hn::MulAdd(values, weights[c], partial[r][c]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Cols; ++c) {
      float sum = reduce_sum(partial[r][c]);
      for (std::int64_t j = i; j < k; ++j)
        sum += x[r * x_stride + j] * to_float(w[c * w_stride + j]);
      sums[r * Cols + c] = sum;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
