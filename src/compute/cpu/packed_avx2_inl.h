// Products of block types with vectors of 256 bits: half a tile, rows 0 to 7 or 8 to 15, with dot
// products of bytes (VNNI) or without. A part of packed_avx2.cc and packed_avxvnni.cc, which alone
// include it.
//
// Without dot products pairs of products are added in 16 bits; how many such sums fit before they
// are widened follows from the largest number. Numbers of eight bits are then multiplied as
// magnitudes, the signs given to the input.
#pragma once

#include <immintrin.h>

#include "compute/cpu/packed.h"
#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

using tensor::DType;

LLORCH_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
LLORCH_INLINE __m256 load_halves(const std::uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LLORCH_INLINE __m256 load_bytes(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Bits at `from` of each byte moved to `to`, the others cleared.
template <int from, int to, int width>
LLORCH_INLINE __m256i move_bits(__m256i v) {
  if constexpr (from > to) v = _mm256_srli_epi16(v, from - to);
  if constexpr (from < to) v = _mm256_slli_epi16(v, to - from);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(((1 << width) - 1) << to)));
}

constexpr bool has_signs(QuantLayout layout) {
  return layout.low_bits == 8 || layout.levels;
}

// Steps whose sums of pairs, 2 · 127 · largest number each, fit 16 bits together.
constexpr int steps_in_16_bits(QuantLayout layout) {
  const int largest = layout.opened ? 62
                      : has_signs(layout)
                          ? 128
                          : ((1 << (layout.low_bits + layout.high_bits)) - 1) << layout.up;
  int steps = 1;
  while (steps < 8 && 2 * steps * 2 * 127 * largest < 32768) steps *= 2;
  return steps;
}

// The numbers of step s of half a tile: unsigned, or with their signs where they are asked for.
template <DType T, int s, bool signs>
LLORCH_INLINE __m256i load_step(const std::uint8_t* vectors) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kHigh = kLayout.high_bits;
  const auto load = [&](int vector) __attribute__((always_inline)) {
    return load256(vectors + vector * kVectorBytes);
  };
  const auto as_asked = [](__m256i numbers) __attribute__((always_inline)) {
    return signs ? _mm256_xor_si256(numbers, _mm256_set1_epi8(-128)) : numbers;
  };
  if constexpr (kLayout.low_bits == 8) return as_asked(load(s));
  __m256i v;
  if constexpr (kLayout.low_bits == 4) {
    v = move_bits<s / 4 * 4, 0, 4>(load(kHigh + s % 4));
  } else {
    v = move_bits<s % 4 * 2, kLayout.up, 2>(load(kHigh + s / 4));
  }
  if constexpr (kLayout.levels) {
    const __m256i levels =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Levels)));
    return as_asked(_mm256_shuffle_epi8(levels, v));
  }
  constexpr int kTop = kLayout.low_bits + kLayout.up;
  if constexpr (kHigh == 1) v = _mm256_or_si256(v, move_bits<s, kTop, 1>(load(0)));
  if constexpr (kHigh == 2) v = _mm256_or_si256(v, move_bits<s % 4 * 2, kTop, 2>(load(s / 4)));
  return v;
}

LLORCH_INLINE __m256i four_of(const InputBlock& x, int s) {
  std::int32_t four;
  __builtin_memcpy(&four, x.quants + 4 * s, sizeof(four));
  return _mm256_set1_epi32(four);
}

// wide[r] += the steps from `s` on that fit 16 bits together.
template <DType T, int Rows, int s, int count>
LLORCH_INLINE void add_steps(const std::uint8_t* vectors, const InputBlock* x, __m256i* wide) {
  __m256i narrow[std::size_t{Rows}];
  const auto step = [&]<int i>() __attribute__((always_inline)) {
    const __m256i numbers = load_step<T, s + i, has_signs(quant_layout(T))>(vectors);
    const __m256i magnitudes = has_signs(quant_layout(T)) ? _mm256_abs_epi8(numbers) : numbers;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      __m256i four = four_of(x[r], s + i);
      if constexpr (has_signs(quant_layout(T))) four = _mm256_sign_epi8(four, numbers);
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, four);
      narrow[r] = i == 0 ? pairs : _mm256_add_epi16(narrow[r], pairs);
      // gcc would else gather the sums of all steps at the end, and spill them.
      asm("" : "+x"(narrow[r]));
    }
  };
  const auto all = [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (step.template operator()<i>(), ...);
  };
  all(std::make_integer_sequence<int, count>());
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
    wide[r] = _mm256_add_epi32(wide[r], _mm256_madd_epi16(narrow[r], _mm256_set1_epi16(1)));
}

// The same with dot products: numbers stay unsigned, and sums start at what that adds.
template <DType T, int Rows, int s>
LLORCH_INLINE void add_dots(const std::uint8_t* vectors, const InputBlock* x, __m256i* wide) {
  const __m256i numbers = load_step<T, s, false>(vectors);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
    wide[r] = _mm256_dpbusd_avx_epi32(wide[r], numbers, four_of(x[r], s));
}

// wide[r] += steps first..last.
template <DType T, int Rows, bool dots, int first, int last>
LLORCH_INLINE void dot(const std::uint8_t* vectors, const InputBlock* x, __m256i* wide) {
  constexpr int kFit = dots ? 1 : steps_in_16_bits(quant_layout(T));
  constexpr int kAtOnce = kFit < last - first ? kFit : last - first;
  const auto all = [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    if constexpr (dots) {
      (add_dots<T, Rows, first + i>(vectors, x, wide), ...);
    } else {
      (add_steps<T, Rows, first + i * kAtOnce, kAtOnce>(vectors, x, wide), ...);
    }
  };
  all(std::make_integer_sequence<int, (last - first) / kAtOnce>());
}

struct Scales {
  __m256 step[2];
  __m256 min[2];
};

template <DType T, int Rows, bool dots>
LLORCH_INLINE void add_group(const std::uint8_t* vectors, const Scales& scales, const InputBlock* x,
                             __m256* sums) {
  constexpr QuantLayout kLayout = quant_layout(T);
  __m256i wide[std::size_t{Rows}];
  if constexpr (kLayout.halves) {
    constexpr bool kBiased = kLayout.bias != NumberBias::None && (dots || !has_signs(kLayout));
    constexpr int kShift = kLayout.bias == NumberBias::Halves128 ? 2 : 0;
    const auto start = [&](int r, int half) __attribute__((always_inline)) {
      const __m256i from = _mm256_slli_epi32(_mm256_set1_epi32(x[r].starts[3 + half]), kShift);
      return kBiased ? from : _mm256_setzero_si256();
    };
    for (int r = 0; r < Rows; ++r) wide[r] = start(r, 0);
    dot<T, Rows, dots, 0, 4>(vectors, x, wide);
    __m256 first[std::size_t{Rows}];
    for (int r = 0; r < Rows; ++r) {
      first[r] = _mm256_mul_ps(_mm256_cvtepi32_ps(wide[r]), scales.step[0]);
      wide[r] = start(r, 1);
    }
    dot<T, Rows, dots, 4, 8>(vectors, x, wide);
    for (int r = 0; r < Rows; ++r) {
      __m256 t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]), scales.step[1], first[r]);
      if constexpr (kLayout.has_min) {
        t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_set1_epi32(x[r].starts[3])), scales.min[0],
                            t);
        t = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_set1_epi32(x[r].starts[4])), scales.min[1],
                            t);
      }
      sums[r] = _mm256_fmadd_ps(t, _mm256_set1_ps(x[r].scale), sums[r]);
    }
  } else {
    constexpr bool kBiased = kLayout.bias != NumberBias::None && (dots || !has_signs(kLayout));
    for (int r = 0; r < Rows; ++r) {
      wide[r] = kBiased ? _mm256_set1_epi32(x[r].starts[static_cast<int>(kLayout.bias) % 5])
                        : _mm256_setzero_si256();
    }
    dot<T, Rows, dots, 0, 8>(vectors, x, wide);
    for (int r = 0; r < Rows; ++r) {
      const __m256 step = _mm256_mul_ps(scales.step[0], _mm256_set1_ps(x[r].scale));
      sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]), step, sums[r]);
      if constexpr (kLayout.has_min) {
        const __m256 total = _mm256_set1_ps(x[r].scaled_sum);
        sums[r] = kLayout.subtracts_min ? _mm256_fnmadd_ps(scales.min[0], total, sums[r])
                                        : _mm256_fmadd_ps(scales.min[0], total, sums[r]);
      }
    }
  }
}

// Products of halves first..last of a tile with the rows of a panel.
template <DType T, int Rows, bool dots, int first, int last>
[[gnu::noinline]] void multiply_halves(const std::uint8_t* tile, const InputBlock* x,
                                       std::int64_t blocks, float* out) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kHalfTile = static_cast<int>(kTileRows) / 2;
  constexpr std::int64_t kGroupBytes = kLayout.scale_bytes() + kLayout.number_bytes();
  __m256 sums[std::size_t{last - first}][std::size_t{Rows}];
  for (int half = first; half < last; ++half) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      sums[half - first][r] = kLayout.opened
                                  ? _mm256_loadu_ps(out + r * kTileRows + half * kHalfTile)
                                  : _mm256_setzero_ps();
    }
  }
  if constexpr (kLayout.elems == 32) {
    for (std::int64_t b = 0; b < blocks; ++b, x += Rows, tile += kLayout.record_bytes()) {
      if constexpr (first == 0 && !kLayout.opened) fetch_ahead<Rows, kLayout.record_bytes()>(tile);
#pragma GCC unroll 2
      for (int half = first; half < last; ++half) {
        Scales scales;
        if constexpr (kLayout.opened) {
          const auto* steps = reinterpret_cast<const float*>(tile) + half * kHalfTile;
          scales.step[0] = _mm256_loadu_ps(steps);
          if constexpr (kLayout.halves) scales.step[1] = _mm256_loadu_ps(steps + kTileRows);
        } else {
          scales.step[0] = load_halves(tile + half * kHalfTile * 2);
        }
        if constexpr (kLayout.has_min)
          scales.min[0] = load_halves(tile + kTileRows * 2 + half * kHalfTile * 2);
        add_group<T, Rows, dots>(tile + kLayout.head_bytes() + half * 32, scales, x,
                                 sums[half - first]);
      }
    }
  } else {
    constexpr int kScales = kLayout.halves ? 2 : 1;
    for (std::int64_t b = 0; b < blocks; b += 8) {
      __m256 step[2], min[2];
      for (int half = first; half < last; ++half) {
        // Powers of two change nothing but the exponent: of `up`, and of starts that are 32 times a
        // sum.
        step[half] = _mm256_mul_ps(load_halves(tile + half * kHalfTile * 2),
                                   _mm256_set1_ps(1.0F / (1 << kLayout.up)));
        min[half] = step[half];
        if constexpr (kLayout.has_min)
          min[half] = load_halves(tile + kTileRows * 2 + half * kHalfTile * 2);
        if constexpr (kLayout.has_min && kLayout.halves)
          min[half] = _mm256_mul_ps(min[half], _mm256_set1_ps(1.0F / 32));
      }
      tile += kLayout.head_bytes();
      for (int g = 0; g < 8; ++g, x += Rows, tile += kGroupBytes) {
        if constexpr (first == 0) fetch_ahead<Rows, kGroupBytes>(tile);
#pragma GCC unroll 2
        for (int half = first; half < last; ++half) {
          const std::uint8_t* bytes = tile + half * kHalfTile;
          Scales scales;
          for (int s = 0; s < kScales; ++s) {
            scales.step[s] = _mm256_mul_ps(step[half], load_bytes(bytes + s * kTileRows));
            if constexpr (kLayout.has_min)
              scales.min[s] =
                  _mm256_mul_ps(min[half], load_bytes(bytes + (kScales + s) * kTileRows));
          }
          add_group<T, Rows, dots>(tile + kLayout.scale_bytes() + half * 32, scales, x,
                                   sums[half - first]);
        }
      }
    }
  }
  for (int half = first; half < last; ++half) {
    for (int r = 0; r < Rows; ++r)
      _mm256_storeu_ps(out + r * kTileRows + half * kHalfTile, sums[half - first][r]);
  }
}

// Rows whose sums with half a tile, of whole numbers and of floats, fit 16 registers.
constexpr int kHalfRows = 6;

// Few rows read a tile once; with more the sums of one half are what fits the registers.
template <bool dots>
struct HalfTiles {
  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    if constexpr (Rows <= 2) {
      multiply_halves<T, Rows, dots, 0, 2>(tile, x, blocks, out);
    } else {
      multiply_halves<T, Rows, dots, 0, 1>(tile, x, blocks, out);
      multiply_halves<T, Rows, dots, 1, 2>(tile, x, blocks, out);
    }
  }
};
using HalfTileRows = std::make_integer_sequence<int, kHalfRows>;

}  // namespace
}  // namespace llorch::compute
