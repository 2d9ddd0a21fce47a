// Products of block types with AVX-512's dot products of bytes: one vector is 16 rows. A part of
// packed_avx512.cc and packed_avx512bf16.cc, which alone include it.
#pragma once

#include <immintrin.h>

#include "compute/cpu/packed.h"
#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

using tensor::DType;

LLORCH_INLINE __m512 load_halves(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LLORCH_INLINE __m512 load_floats(const std::uint8_t* p) {
  return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
}
LLORCH_INLINE __m512 load_bytes(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// What OpenedNumbers and RoundedNumbers add to: two vectors for each of a few rows and tiles.
template <int num_tiles, int num_rows>
struct TwoSums {
  static constexpr std::size_t kTiles = num_tiles;
  static constexpr std::size_t kRows = num_rows;
  __m512 even[kRows][kTiles], odd[kRows][kTiles];

  LLORCH_INLINE void load(bool from_zero, const float* sums) {
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (std::size_t t = 0; t < kTiles; ++t, sums += 2 * kTileRows) {
        even[r][t] = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(sums);
        odd[r][t] = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(sums + kTileRows);
      }
    }
  }
  LLORCH_INLINE void store(float* sums) const {
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (std::size_t t = 0; t < kTiles; ++t, sums += 2 * kTileRows) {
        _mm512_store_ps(sums, even[r][t]);
        _mm512_store_ps(sums + kTileRows, odd[r][t]);
      }
    }
  }
};

// Bits at `from` of each byte moved to `to`, the others cleared.
template <int from, int to, int width>
LLORCH_INLINE __m512i move_bits(__m512i v) {
  if constexpr (from > to) v = _mm512_srli_epi16(v, from - to);
  if constexpr (from < to) v = _mm512_slli_epi16(v, to - from);
  return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(((1 << width) - 1) << to)));
}

// The numbers of step s, ready to be multiplied.
template <QuantLayout kLayout, int s>
LLORCH_INLINE __m512i load_step(const std::uint8_t* vectors) {
  const auto load = [&](int vector) __attribute__((always_inline)) {
    return _mm512_loadu_si512(vectors + vector * kVectorBytes);
  };
  constexpr int kHigh = kLayout.high_bits;
  if constexpr (kLayout.low_bits == 8) return load(s);
  __m512i v;
  if constexpr (kLayout.low_bits == 4) {
    v = move_bits<s / 4 * 4, 0, 4>(load(kHigh + s % 4));
  } else {
    v = move_bits<s % 4 * 2, kLayout.up, 2>(load(kHigh + s / 4));
  }
  if constexpr (kLayout.levels) {
    const __m512i levels =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Levels)));
    return _mm512_shuffle_epi8(levels, v);
  }
  constexpr int kTop = kLayout.low_bits + kLayout.up;
  if constexpr (kHigh == 1) v = _mm512_or_si512(v, move_bits<s, kTop, 1>(load(0)));
  if constexpr (kHigh == 2) v = _mm512_or_si512(v, move_bits<s % 4 * 2, kTop, 2>(load(s / 4)));
  return v;
}

// What scales 32 k of a tile: one step, or one for each half; minimums likewise.
struct Scales {
  __m512 step[2];
  __m512 min[2];
};

// Those of an opened record: steps first.
template <QuantLayout kLayout>
LLORCH_INLINE void load_opened_scales(const std::uint8_t* head, Scales& scales) {
  constexpr int kSteps = kLayout.halves ? 2 : 1;
#pragma GCC unroll 2
  for (int s = 0; s < kSteps; ++s) {
    scales.step[s] = load_floats(head + s * kVectorBytes);
    if constexpr (kLayout.has_min) scales.min[s] = load_floats(head + (kSteps + s) * kVectorBytes);
  }
}

// Calls visit(numbers, scales) for each 32 k of tiles that follow each other, `stride` apart: where
// the first one's numbers lie, and what scales each of them. They are read for so many rows.
template <QuantLayout kLayout, int rows, int tiles, class F>
LLORCH_INLINE void each_group(const std::uint8_t* tile, std::int64_t stride, std::int64_t blocks,
                              const F& visit) {
  Scales scales[std::size_t{tiles}];
  if constexpr (kLayout.elems == 32) {
    for (std::int64_t b = 0; b < blocks; ++b, tile += kLayout.record_bytes()) {
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t) {
        const std::uint8_t* head = tile + t * stride;
        if constexpr (kLayout.opened) {
          load_opened_scales<kLayout>(head, scales[t]);
          continue;
        }
        fetch_ahead<rows, kLayout.record_bytes()>(head);
        scales[t].step[0] = load_halves(head);
        if constexpr (kLayout.has_min) scales[t].min[0] = load_halves(head + kTileRows * 2);
      }
      visit(tile + kLayout.head_bytes(), scales);
    }
  } else {
    constexpr int kScales = kLayout.halves ? 2 : 1;
    for (std::int64_t b = 0; b < blocks; b += 8) {
      __m512 step[std::size_t{tiles}], min[std::size_t{tiles}];
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t) {
        // Powers of two change nothing but the exponent: of `up`, and of starts that are 32 times a
        // sum.
        const std::uint8_t* head = tile + t * stride;
        step[t] = _mm512_mul_ps(load_halves(head), _mm512_set1_ps(1.0F / (1 << kLayout.up)));
        if constexpr (kLayout.has_min) min[t] = load_halves(head + kTileRows * 2);
        if constexpr (kLayout.has_min && kLayout.halves)
          min[t] = _mm512_mul_ps(min[t], _mm512_set1_ps(1.0F / 32));
      }
      tile += kLayout.head_bytes();
      for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles; ++t) {
          const std::uint8_t* bytes = tile + t * stride;
          fetch_ahead<rows, kLayout.scale_bytes() + kLayout.number_bytes()>(bytes);
          for (int s = 0; s < kScales; ++s) {
            scales[t].step[s] = _mm512_mul_ps(step[t], load_bytes(bytes + s * kTileRows));
            if constexpr (kLayout.has_min)
              scales[t].min[s] =
                  _mm512_mul_ps(min[t], load_bytes(bytes + (kScales + s) * kTileRows));
          }
        }
        visit(tile + kLayout.scale_bytes(), scales);
        tile += kLayout.scale_bytes() + kLayout.number_bytes();
      }
    }
  }
}

// A few rows of x with one tile or two.
template <QuantLayout kLayout, int rows, int tiles>
struct Products {
  using Whole = __m512i[std::size_t{rows}][std::size_t{tiles}];
  using Floats = __m512[std::size_t{rows}][std::size_t{tiles}];

  // All sums of a row at what its input says, or at nothing.
  static LLORCH_INLINE void start(Whole& whole, const InputBlock* x, int start, bool biased) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      __m512i from = biased ? _mm512_set1_epi32(x[r].starts[start]) : _mm512_setzero_si512();
      if constexpr (kLayout.bias == NumberBias::Halves128) from = _mm512_slli_epi32(from, 2);
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t) whole[r][t] = from;
    }
  }

  // A step's numbers serve all rows, four values of a row all tiles: what is loaded is used often.
  template <int s>
  static LLORCH_INLINE void step(Whole& whole, const std::uint8_t* vectors, std::int64_t stride,
                                 const InputBlock* x) {
    __m512i numbers[std::size_t{tiles}];
#pragma GCC unroll 2
    for (int t = 0; t < tiles; ++t) numbers[t] = load_step<kLayout, s>(vectors + t * stride);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      std::int32_t four;
      __builtin_memcpy(&four, x[r].quants + 4 * s, sizeof(four));
      const __m512i values = _mm512_set1_epi32(four);
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t)
        whole[r][t] = _mm512_dpbusd_epi32(whole[r][t], numbers[t], values);
    }
  }
  template <int first>
  static LLORCH_INLINE void four_steps(Whole& whole, const std::uint8_t* vectors,
                                       std::int64_t stride, const InputBlock* x) {
    step<first>(whole, vectors, stride, x);
    step<first + 1>(whole, vectors, stride, x);
    step<first + 2>(whole, vectors, stride, x);
    step<first + 3>(whole, vectors, stride, x);
  }

  static LLORCH_INLINE void add_halves(Floats& sums, const std::uint8_t* vectors,
                                       std::int64_t stride, const Scales* scales,
                                       const InputBlock* x) {
    constexpr bool kBiased = kLayout.bias != NumberBias::None;
    Whole whole;
    Floats parts;
    start(whole, x, 3, kBiased);
    four_steps<0>(whole, vectors, stride, x);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t)
        parts[r][t] = _mm512_mul_ps(_mm512_cvtepi32_ps(whole[r][t]), scales[t].step[0]);
    }
    start(whole, x, 4, kBiased);
    four_steps<4>(whole, vectors, stride, x);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const auto start_of = [&](int half) __attribute__((always_inline)) {
        return _mm512_cvtepi32_ps(_mm512_set1_epi32(x[r].starts[3 + half]));
      };
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t) {
        __m512 sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r][t]), scales[t].step[1], parts[r][t]);
        if constexpr (kLayout.has_min) {
          sum = _mm512_fmadd_ps(start_of(0), scales[t].min[0], sum);
          sum = _mm512_fmadd_ps(start_of(1), scales[t].min[1], sum);
        }
        sums[r][t] = _mm512_fmadd_ps(sum, _mm512_set1_ps(x[r].scale), sums[r][t]);
      }
    }
  }

  static LLORCH_INLINE void add(Floats& sums, const std::uint8_t* vectors, std::int64_t stride,
                                const Scales* scales, const InputBlock* x) {
    if constexpr (kLayout.halves) return add_halves(sums, vectors, stride, scales, x);
    Whole whole;
    start(whole, x, static_cast<int>(kLayout.bias) % 5, kLayout.bias != NumberBias::None);
    four_steps<0>(whole, vectors, stride, x);
    four_steps<4>(whole, vectors, stride, x);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m512 scale = _mm512_set1_ps(x[r].scale);
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t) {
        sums[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r][t]),
                                     _mm512_mul_ps(scales[t].step[0], scale), sums[r][t]);
        if constexpr (kLayout.has_min) {
          const __m512 total = _mm512_set1_ps(x[r].scaled_sum);
          sums[r][t] = kLayout.subtracts_min ? _mm512_fnmadd_ps(scales[t].min[0], total, sums[r][t])
                                             : _mm512_fmadd_ps(scales[t].min[0], total, sums[r][t]);
        }
      }
    }
  }

  // sums[r] of a whole tile; of opened ones, added to what they are.
  static LLORCH_INLINE void multiply(const std::uint8_t* tile, const InputBlock* x,
                                     std::int64_t blocks, float* out) {
    static_assert(tiles == 1);
    Floats sums;
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
      sums[r][0] = kLayout.opened ? _mm512_loadu_ps(out + r * kTileRows) : _mm512_setzero_ps();
    each_group<kLayout, rows, 1>(
        tile, 0, blocks,
        [&](const std::uint8_t* vectors, const Scales* scales) __attribute__((always_inline)) {
          add(sums, vectors, 0, scales, x);
          x += rows;
        });
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) _mm512_storeu_ps(out + r * kTileRows, sums[r][0]);
  }

  static LLORCH_INLINE void pass(const QuantPass& at) {
    Floats sums;
    load_sums(at, sums);
    const InputBlock* x = at.x;
    LinesAhead ahead = at.ahead;
    each_group<kLayout, kPanelRows, tiles>(
        at.tiles, at.tile_bytes, at.blocks,
        [&](const std::uint8_t* vectors, const Scales* scales) __attribute__((always_inline)) {
          ask_for<tiles>(ahead);
          add(sums, vectors, at.tile_bytes, scales, x);
          x += rows;
        });
    store_sums(at, sums);
  }

 private:
  static LLORCH_INLINE void load_sums(const QuantPass& at, Floats& sums) {
    if (at.first) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles; ++t) sums[r][t] = _mm512_setzero_ps();
      }
      return;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t)
        sums[r][t] = _mm512_load_ps(at.sums + (r * tiles + t) * kTileRows);
    }
  }
  // To where they wait, or to the columns of the output.
  static LLORCH_INLINE void store_sums(const QuantPass& at, const Floats& sums) {
    if (at.out == nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles; ++t)
          _mm512_store_ps(at.sums + (r * tiles + t) * kTileRows, sums[r][t]);
      }
      return;
    }
    __m512 bias[std::size_t{tiles}];
    const bool has_bias = at.bias != nullptr;
#pragma GCC unroll 2
    for (int t = 0; t < tiles; ++t)
      bias[t] = has_bias ? _mm512_loadu_ps(at.bias + t * kTileRows) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      float* out = at.out + r * at.out_stride;
#pragma GCC unroll 2
      for (int t = 0; t < tiles; ++t, out += kTileRows) {
        __m512 sum = sums[r][t];
        if (has_bias) sum = _mm512_add_ps(sum, bias[t]);
        if (at.accumulate) sum = _mm512_add_ps(_mm512_loadu_ps(out), sum);
        _mm512_storeu_ps(out, sum);
      }
    }
  }
};

// What is subtracted from a stored number.
constexpr int bias_of(NumberBias bias) {
  switch (bias) {
    case NumberBias::By128:
      return 128;
    case NumberBias::By16:
      return 16;
    case NumberBias::By8:
      return 8;
    case NumberBias::Halves32:
      return 32;
    default:
      return 0;
  }
}

// Numbers become such with another bias, or with none signed bytes; minimums additions.
template <QuantLayout kLayout, int bias>
void open(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr int kScales = kLayout.halves ? 2 : 1;
  constexpr bool kNegates = kLayout.subtracts_min && !kLayout.halves;
  constexpr int kMore = bias - bias_of(kLayout.bias);
  each_group<kLayout, 1, 1>(
      tile, 0,
      blocks, [&](const std::uint8_t* vectors, const Scales* all) __attribute__((always_inline)) {
        const Scales& scales = *all;
        const auto put = [&](__m512i vector) __attribute__((always_inline)) {
          _mm512_store_si512(out, vector);
          out += kVectorBytes;
        };
        for (int s = 0; s < kScales; ++s) put(_mm512_castps_si512(scales.step[s]));
        if constexpr (kLayout.has_min) {
          for (int s = 0; s < kScales; ++s) {
            const __m512 min = scales.min[s];
            put(_mm512_castps_si512(kNegates ? _mm512_xor_ps(min, _mm512_set1_ps(-0.0F)) : min));
          }
        }
        const auto numbers = [&]<int... s>(std::integer_sequence<int, s...>)
            __attribute__((always_inline)) {
          (put(_mm512_add_epi8(load_step<kLayout, s>(vectors),
                               _mm512_set1_epi8(static_cast<char>(kMore)))),
           ...);
        };
        numbers(std::make_integer_sequence<int, 8>());
      });
}

}  // namespace
}  // namespace llorch::compute
