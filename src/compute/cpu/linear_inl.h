// The matrix product of a range of weight rows. Included once per instruction set.
#include "compute/cpu/decode_inl.h"
#include "compute/cpu/dot_inl.h"
#include "compute/cpu/kernels.h"

#if defined(LLORCH_COMPUTE_CPU_LINEAR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_LINEAR_INL_H
#undef LLORCH_COMPUTE_CPU_LINEAR_INL_H
#else
#define LLORCH_COMPUTE_CPU_LINEAR_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// From this many rows on, converting half-precision weights once beats converting them in each
// tile.
constexpr std::int64_t kRowsToDecodeFrom = 8;

template <int Rows, int Cols>
HWY_INLINE void store_tile(const LinearRange& range, std::int64_t row, std::int64_t col,
                           const float* sums) {
  for (int r = 0; r < Rows; ++r) {
    float* out = range.out + (row + r) * range.out_stride + col;
    for (int c = 0; c < Cols; ++c) {
      const float sum =
          range.bias != nullptr ? sums[r * Cols + c] + range.bias[col + c] : sums[r * Cols + c];
      out[c] = range.accumulate ? out[c] + sum : sum;
    }
  }
}

// All rows of x times `Cols` weight rows from column `col` on.
template <int Cols, class T>
HWY_INLINE void multiply_cols(const LinearRange& range, std::int64_t col, const T* w,
                              std::int64_t w_stride) {
  constexpr int kRows = 4;
  float sums[std::size_t{kRows * Cols}];
  std::int64_t row = 0;
  for (; row + kRows <= range.rows; row += kRows) {
    dot_tile<kRows, Cols>(range.x + row * range.x_stride, range.x_stride, w, w_stride, range.k,
                          sums);
    store_tile<kRows, Cols>(range, row, col, sums);
  }
  for (; row < range.rows; ++row) {
    dot_tile<1, Cols>(range.x + row * range.x_stride, range.x_stride, w, w_stride, range.k, sums);
    store_tile<1, Cols>(range, row, col, sums);
  }
}

// Weights that are multiplied as they are stored.
template <class T>
HWY_INLINE void multiply_direct(const LinearRange& range) {
  const T* w = reinterpret_cast<const T*>(range.weight);
  std::int64_t col = 0;
  for (; col + kTileCols <= range.cols; col += kTileCols) {
    multiply_cols<kTileCols>(range, col, w + col * range.k, range.k);
  }
  for (; col < range.cols; ++col) multiply_cols<1>(range, col, w + col * range.k, range.k);
}

// Weights that are decoded to scratch first, each row once.
HWY_INLINE void multiply_decoded(const LinearRange& range) {
  for (std::int64_t col = 0; col < range.cols; col += kTileCols) {
    const std::int64_t count = HWY_MIN(kTileCols, range.cols - col);
    for (std::int64_t c = 0; c < count; ++c) {
      decode_row(range.dtype, range.weight + (col + c) * range.row_bytes, range.k,
                 range.scratch + c * range.k);
    }
    if (count == kTileCols) {
      multiply_cols<kTileCols>(range, col, range.scratch, range.k);
      continue;
    }
    for (std::int64_t c = 0; c < count; ++c) {
      multiply_cols<1>(range, col + c, range.scratch + c * range.k, range.k);
    }
  }
}

HWY_MAYBE_UNUSED static void linear(const LinearRange& range) {
  const bool few_rows = range.rows < kRowsToDecodeFrom;
  if (range.dtype == tensor::DType::F32) return multiply_direct<float>(range);
  if (range.dtype == tensor::DType::F16 && few_rows) return multiply_direct<Half>(range);
  if (range.dtype == tensor::DType::BF16 && few_rows) return multiply_direct<Bfloat16>(range);
  multiply_decoded(range);
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
