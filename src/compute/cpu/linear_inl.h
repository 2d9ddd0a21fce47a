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
// Up to this many rows, decoding quantised weights again for each beats storing them decoded.
constexpr std::int64_t kRowsToMultiplyBlocks = 4;

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

// Weights that are decoded to scratch first, each row once, from column `first` on.
HWY_INLINE void multiply_decoded(const LinearRange& range, std::int64_t first) {
  for (std::int64_t col = first; col < range.cols; col += kTileCols) {
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

// `Rows` rows of x times kTileCols weight rows, multiplied as they are decoded, without a detour
// through memory. Adds in the same order as dot_tile does, so that the result does not depend on
// which of the two computed it.
template <class Decoder, int Rows>
HWY_INLINE void multiply_blocks(const LinearRange& range, std::int64_t row, std::int64_t col) {
  constexpr int kCols = kTileCols;
  const float* x = range.x + row * range.x_stride;
  Vec partial[std::size_t{Rows}][std::size_t{kCols}];
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < kCols; ++c) partial[r][c] = hn::Zero(Floats());
  }
  for (std::int64_t block = 0; block < range.k / Decoder::kElems; ++block) {
    const float* values = x + block * Decoder::kElems;
    for (int c = 0; c < kCols; ++c) {
      const std::uint8_t* weight = range.weight + (col + c) * range.row_bytes;
      Decoder::decode(weight + block * Decoder::kBytes, [&](std::int64_t at, Vec weights) HWY_ATTR {
        for (int r = 0; r < Rows; ++r) {
          partial[r][c] =
              hn::MulAdd(load(values + r * range.x_stride + at), weights, partial[r][c]);
        }
      });
    }
  }
  float sums[std::size_t{Rows * kCols}];
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < kCols; ++c) sums[r * kCols + c] = reduce_sum(partial[r][c]);
  }
  store_tile<Rows, kCols>(range, row, col, sums);
}

// Quantised weights for few rows. Gives the number of columns it did: all whole tiles, or none of a
// type without a block decoder.
HWY_INLINE std::int64_t multiply_blocks(const LinearRange& range) {
  const std::int64_t cols = range.cols - range.cols % kTileCols;
  const bool done = with_block_decoder(range.dtype, [&](auto decoder) HWY_ATTR {
    using Decoder = decltype(decoder);
    for (std::int64_t col = 0; col < cols; col += kTileCols) {
      std::int64_t row = 0;
      for (; row + 4 <= range.rows; row += 4) multiply_blocks<Decoder, 4>(range, row, col);
      for (; row + 2 <= range.rows; row += 2) multiply_blocks<Decoder, 2>(range, row, col);
      if (row < range.rows) multiply_blocks<Decoder, 1>(range, row, col);
    }
  });
  return done ? cols : 0;
}

HWY_MAYBE_UNUSED static void linear(const LinearRange& range) {
  const bool few_rows = range.rows < kRowsToDecodeFrom;
  if (range.dtype == tensor::DType::F32) return multiply_direct<float>(range);
  if (range.dtype == tensor::DType::F16 && few_rows) return multiply_direct<Half>(range);
  if (range.dtype == tensor::DType::BF16 && few_rows) return multiply_direct<Bfloat16>(range);
  multiply_decoded(range, range.rows <= kRowsToMultiplyBlocks ? multiply_blocks(range) : 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
