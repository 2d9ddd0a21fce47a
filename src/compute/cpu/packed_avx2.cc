// Tiles with AVX2, FMA and F16C: a vector is half a tile, rows 0 to 7 or 8 to 15. Compiled for that
// set; it holds nothing that another file could be given by the linker.
//
// Pairs of products are added in 16 bits; how many such sums fit before they are widened follows
// from the largest number. Numbers of eight bits are multiplied as magnitudes, the signs given to
// the input.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace llorch::compute {
namespace {

using tensor::DType;

#define LLORCH_INLINE inline __attribute__((always_inline))

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
  const int largest =
      has_signs(layout) ? 128 : ((1 << (layout.low_bits + layout.high_bits)) - 1) << layout.up;
  int steps = 1;
  while (steps < 8 && 2 * steps * 2 * 127 * largest < 32768) steps *= 2;
  return steps;
}

// The numbers of step s of half a tile: unsigned, or with their signs.
template <DType T, int s>
LLORCH_INLINE __m256i load_step(const std::uint8_t* vectors) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kHigh = kLayout.high_bits;
  const auto load = [&](int vector) __attribute__((always_inline)) {
    return load256(vectors + vector * kVectorBytes);
  };
  const __m256i top = _mm256_set1_epi8(-128);
  if constexpr (kLayout.low_bits == 8) return _mm256_xor_si256(load(s), top);
  __m256i v;
  if constexpr (kLayout.low_bits == 4) {
    v = move_bits<s / 4 * 4, 0, 4>(load(kHigh + s % 4));
  } else {
    v = move_bits<s % 4 * 2, kLayout.up, 2>(load(kHigh + s / 4));
  }
  if constexpr (kLayout.levels) {
    const __m256i levels =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Levels)));
    return _mm256_xor_si256(_mm256_shuffle_epi8(levels, v), top);
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
    const __m256i numbers = load_step<T, s + i>(vectors);
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

// wide[r] += steps first..last.
template <DType T, int Rows, int first, int last>
LLORCH_INLINE void dot(const std::uint8_t* vectors, const InputBlock* x, __m256i* wide) {
  constexpr int kAtOnce = steps_in_16_bits(quant_layout(T)) < last - first
                              ? steps_in_16_bits(quant_layout(T))
                              : last - first;
  const auto all = [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (add_steps<T, Rows, first + i * kAtOnce, kAtOnce>(vectors, x, wide), ...);
  };
  all(std::make_integer_sequence<int, (last - first) / kAtOnce>());
}

struct Scales {
  __m256 step[2];
  __m256 min[2];
};

template <DType T, int Rows>
LLORCH_INLINE void add_group(const std::uint8_t* vectors, const Scales& scales, const InputBlock* x,
                             __m256* sums) {
  constexpr QuantLayout kLayout = quant_layout(T);
  __m256i wide[std::size_t{Rows}];
  if constexpr (kLayout.halves) {
    constexpr bool kBiased = kLayout.bias == NumberBias::Halves32;
    for (int r = 0; r < Rows; ++r)
      wide[r] = kBiased ? _mm256_set1_epi32(x[r].starts[3]) : _mm256_setzero_si256();
    dot<T, Rows, 0, 4>(vectors, x, wide);
    __m256 first[std::size_t{Rows}];
    for (int r = 0; r < Rows; ++r) {
      first[r] = _mm256_mul_ps(_mm256_cvtepi32_ps(wide[r]), scales.step[0]);
      wide[r] = kBiased ? _mm256_set1_epi32(x[r].starts[4]) : _mm256_setzero_si256();
    }
    dot<T, Rows, 4, 8>(vectors, x, wide);
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
    constexpr bool kBiased = kLayout.bias != NumberBias::None && !has_signs(kLayout);
    for (int r = 0; r < Rows; ++r) {
      wide[r] = kBiased ? _mm256_set1_epi32(x[r].starts[static_cast<int>(kLayout.bias) % 5])
                        : _mm256_setzero_si256();
    }
    dot<T, Rows, 0, 8>(vectors, x, wide);
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

struct Tiles {
  // More rows than this would not fit the registers.
  static constexpr int kRowsAtOnce = 4;

  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    constexpr int kFirst = Rows <= kRowsAtOnce ? Rows : (Rows + 1) / 2;
    some_quants<T, kFirst>(tile, x, Rows, blocks, out);
    if constexpr (kFirst < Rows)
      some_quants<T, Rows - kFirst>(tile, x + kFirst, Rows, blocks, out + kFirst * kTileRows);
  }

  // Rows of x that stand among `stride` in their panel.
  template <DType T, int Rows>
  [[gnu::noinline]] static void some_quants(const std::uint8_t* tile, const InputBlock* x,
                                            std::int64_t stride, std::int64_t blocks, float* out) {
    constexpr QuantLayout kLayout = quant_layout(T);
    constexpr int kHalfTile = static_cast<int>(kTileRows) / 2;
    __m256 sums[2][std::size_t{Rows}];
    for (int r = 0; r < Rows; ++r) sums[0][r] = sums[1][r] = _mm256_setzero_ps();
    if constexpr (kLayout.elems == 32) {
      for (std::int64_t b = 0; b < blocks; ++b, x += stride, tile += kLayout.record_bytes()) {
        if (stride == Rows) fetch_ahead<Rows, kLayout.record_bytes()>(tile);
        for (int half = 0; half < 2; ++half) {
          Scales scales;
          scales.step[0] = load_halves(tile + half * kHalfTile * 2);
          if constexpr (kLayout.has_min)
            scales.min[0] = load_halves(tile + kTileRows * 2 + half * kHalfTile * 2);
          add_group<T, Rows>(tile + kLayout.head_bytes() + half * 32, scales, x, sums[half]);
        }
      }
    } else {
      constexpr int kScales = kLayout.halves ? 2 : 1;
      for (std::int64_t b = 0; b < blocks; b += 8) {
        __m256 step[2], min[2];
        for (int half = 0; half < 2; ++half) {
          // Powers of two change nothing but the exponent: of `up`, and of starts that are 32 times
          // a sum.
          step[half] = _mm256_mul_ps(load_halves(tile + half * kHalfTile * 2),
                                     _mm256_set1_ps(1.0F / (1 << kLayout.up)));
          min[half] = step[half];
          if constexpr (kLayout.has_min)
            min[half] = load_halves(tile + kTileRows * 2 + half * kHalfTile * 2);
          if constexpr (kLayout.has_min && kLayout.halves)
            min[half] = _mm256_mul_ps(min[half], _mm256_set1_ps(1.0F / 32));
        }
        tile += kLayout.head_bytes();
        for (int g = 0; g < 8; ++g, x += stride) {
          if (stride == Rows)
            fetch_ahead<Rows, kLayout.scale_bytes() + kLayout.number_bytes()>(tile);
          for (int half = 0; half < 2; ++half) {
            const std::uint8_t* bytes = tile + half * kHalfTile;
            Scales scales;
            for (int s = 0; s < kScales; ++s) {
              scales.step[s] = _mm256_mul_ps(step[half], load_bytes(bytes + s * kTileRows));
              if constexpr (kLayout.has_min)
                scales.min[s] =
                    _mm256_mul_ps(min[half], load_bytes(bytes + (kScales + s) * kTileRows));
            }
            add_group<T, Rows>(tile + kLayout.scale_bytes() + half * 32, scales, x, sums[half]);
          }
          tile += kLayout.scale_bytes() + kLayout.number_bytes();
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      _mm256_storeu_ps(out + r * kTileRows, sums[0][r]);
      _mm256_storeu_ps(out + r * kTileRows + kHalfTile, sums[1][r]);
    }
  }

  template <DType T>
  static LLORCH_INLINE __m256 load_numbers(const std::uint8_t* p) {
    if constexpr (T == DType::F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    if constexpr (T == DType::F16) return load_halves(p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }

  // `Rows` rows, 12 registers of sums at most.
  template <DType T, int Rows>
  static LLORCH_INLINE void half_numbers(const std::uint8_t* tile, const float* x,
                                         std::int64_t x_stride, std::int64_t k, float* out) {
    constexpr std::int64_t kBytes = kTileRows * (T == DType::F32 ? 4 : 2);
    __m256 even[std::size_t{Rows}], odd[std::size_t{Rows}];
    for (int r = 0; r < Rows; ++r) even[r] = odd[r] = _mm256_setzero_ps();
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += 2 * kBytes) {
      fetch_ahead<Rows, 2 * kBytes>(tile);
      const __m256 a = load_numbers<T>(tile);
      const __m256 b = load_numbers<T>(tile + kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const float* row = x + r * x_stride + i;
        even[r] = _mm256_fmadd_ps(a, _mm256_set1_ps(row[0]), even[r]);
        odd[r] = _mm256_fmadd_ps(b, _mm256_set1_ps(row[1]), odd[r]);
      }
    }
    if (i < k) {
      const __m256 a = load_numbers<T>(tile);
      for (int r = 0; r < Rows; ++r)
        even[r] = _mm256_fmadd_ps(a, _mm256_set1_ps(x[r * x_stride + i]), even[r]);
    }
    for (int r = 0; r < Rows; ++r)
      _mm256_storeu_ps(out + r * kTileRows, _mm256_add_ps(even[r], odd[r]));
  }

  template <DType T, int Rows>
  static void numbers(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                      std::int64_t k, float* out) {
    constexpr int kFirst = Rows > 6 ? Rows / 2 : Rows;
    constexpr int kSecond = Rows - kFirst;
    constexpr std::int64_t kHalf = kTileRows / 2 * (T == DType::F32 ? 4 : 2);
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* bytes = tile + half * kHalf;
      half_numbers<T, kFirst>(bytes, x, x_stride, k, out + half * 8);
      if constexpr (kSecond > 0)
        half_numbers<T, kSecond>(bytes, x + kFirst * x_stride, x_stride, k,
                                 out + kFirst * kTileRows + half * 8);
    }
  }
};

template <DType T>
void open_numbers(const std::uint8_t* tile, std::int64_t, std::int64_t, std::int64_t k,
                  float* opened) {
  constexpr std::int64_t kBytes = kTileRows / 2 * (T == DType::F32 ? 4 : 2);
  for (std::int64_t i = 0; i < 2 * k; ++i, tile += kBytes, opened += kTileRows / 2)
    _mm256_store_ps(opened, Tiles::load_numbers<T>(tile));
}

// Three rows and both halves of a tile: 12 sums of the 16 registers.
template <int num_rows>
void multiply_numbers(const float* opened, const float* x, std::int64_t x_stride, std::int64_t k,
                      bool from_zero, float* out) {
  constexpr std::size_t kRows = num_rows;
  constexpr std::int64_t kHalf = kTileRows / 2;
  __m256 even[kRows][2], odd[kRows][2];
#pragma GCC unroll 3
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t h = 0; h < 2; ++h) {
      const float* sums = out + r * 2 * kTileRows + h * kHalf;
      even[r][h] = from_zero ? _mm256_setzero_ps() : _mm256_load_ps(sums);
      odd[r][h] = from_zero ? _mm256_setzero_ps() : _mm256_load_ps(sums + kTileRows);
    }
  }
  std::int64_t i = 0;
  for (; i + 2 <= k; i += 2, opened += 2 * kTileRows) {
    const auto add = [&](__m256(*sums)[2], std::int64_t parity) __attribute__((always_inline)) {
      const __m256 low = _mm256_load_ps(opened + parity * kTileRows);
      const __m256 high = _mm256_load_ps(opened + parity * kTileRows + kHalf);
#pragma GCC unroll 3
      for (std::size_t r = 0; r < kRows; ++r) {
        const __m256 value =
            _mm256_broadcast_ss(x + static_cast<std::int64_t>(r) * x_stride + i + parity);
        sums[r][0] = _mm256_fmadd_ps(low, value, sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(high, value, sums[r][1]);
      }
    };
    add(even, 0);
    add(odd, 1);
  }
#pragma GCC unroll 3
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t h = 0; h < 2; ++h) {
      if (i < k) {
        const __m256 value = _mm256_broadcast_ss(x + static_cast<std::int64_t>(r) * x_stride + i);
        even[r][h] = _mm256_fmadd_ps(_mm256_load_ps(opened + h * kHalf), value, even[r][h]);
      }
      float* sums = out + r * 2 * kTileRows + h * kHalf;
      _mm256_store_ps(sums, even[r][h]);
      _mm256_store_ps(sums + kTileRows, odd[r][h]);
    }
  }
}

void finish_numbers(const float* sums, std::int64_t stride, std::int64_t rows, float* out) {
  for (std::int64_t r = 0; r < rows; ++r, sums += stride * 2 * kTileRows) {
    for (int h = 0; h < 2; ++h, out += 8)
      _mm256_store_ps(out, _mm256_add_ps(_mm256_load_ps(sums + h * 8),
                                         _mm256_load_ps(sums + kTileRows + h * 8)));
  }
}

constexpr NumberBlocks make_blocks() {
  NumberBlocks blocks = {.from = 17, .rows = 3, .tiles = 1};
  blocks.finish = finish_numbers;
  blocks.open[static_cast<int>(DType::F32)] = open_numbers<DType::F32>;
  blocks.open[static_cast<int>(DType::F16)] = open_numbers<DType::F16>;
  blocks.open[static_cast<int>(DType::BF16)] = open_numbers<DType::BF16>;
  blocks.multiply[0][0] = multiply_numbers<1>;
  blocks.multiply[0][1] = multiply_numbers<2>;
  blocks.multiply[0][2] = multiply_numbers<3>;
  return blocks;
}

LLORCH_INLINE std::int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 1);
}

void quantize(const float* x, std::int64_t k, InputBlock* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += kInputBlock, x += kInputBlock, out += stride) {
    __m256 values[4];
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 most = _mm256_setzero_ps();
    __m256 odd = _mm256_setzero_ps();  // NaN where a value is not finite
    for (int v = 0; v < 4; ++v) {
      values[v] = _mm256_loadu_ps(x + 8 * v);
      most = _mm256_max_ps(most, _mm256_andnot_ps(sign, values[v]));
      odd = _mm256_add_ps(odd, _mm256_mul_ps(values[v], _mm256_setzero_ps()));
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    const float largest = _mm_cvtss_f32(m);
    const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(odd, odd, _CMP_UNORD_Q)) == 0;
    if (!finite || largest < 4e-37F) {
      quantize_block(x, *out);
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0F / largest);
    __m256i q[4];
    for (int v = 0; v < 4; ++v) q[v] = _mm256_cvtps_epi32(_mm256_mul_ps(values[v], inverse));
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    // Packing works on halves of the register: 0 4 1 5 2 6 3 7.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->quants),
                        _mm256_permutevar8x32_epi32(packed, order));
    finish_block(largest / 127.0F, sum_lanes(_mm256_add_epi32(q[0], q[1])),
                 sum_lanes(_mm256_add_epi32(q[2], q[3])), *out);
  }
}

constexpr int kChains = 12;  // more than the multipliers' latency times their number

// Eight pairs of products summed in 16 bits for each widening, as Q4_0 does.
std::int64_t spin_int8(std::int64_t rounds) {
  __m256i sums[kChains];
  // Unrolled too, or the sums would live in memory and the loop wait for it.
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  const __m256i ones = _mm256_set1_epi8(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(ones, sums[i]));
      asm volatile("" : "+x"(sums[i]));
    }
  }
  return rounds * kChains * 32 * 2;
}

std::int64_t spin_float(std::int64_t rounds) {
  __m256 sums[kChains];
  // Unrolled too, or the sums would live in memory and the loop wait for it.
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_setzero_ps();
  const __m256 half = _mm256_set1_ps(0.5F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_fmadd_ps(sums[i], half, half);
      asm volatile("" : "+x"(sums[i]));
    }
  }
  return rounds * kChains * 8 * 2;
}

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) {
  __m256i low = _mm256_setzero_si256();
  __m256i high = low;
  for (std::int64_t i = 0; i < count; i += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + kAheadBytes, _MM_HINT_T0);
    low = _mm256_add_epi64(low, load256(words + i));
    high = _mm256_add_epi64(high, load256(words + i + 4));
  }
  alignas(32) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(low, high));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

constexpr PackedKernels make_kernels() {
  PackedKernels kernels{};
  TileTables<Tiles>::fill(kernels);
  kernels.blocks = make_blocks();
  kernels.quantize = quantize;
  kernels.spin_int8 = spin_int8;
  kernels.spin_float = spin_float;
  kernels.sum_words = sum_words;
  return kernels;
}
constexpr PackedKernels kKernels = make_kernels();

}  // namespace

const PackedKernels* packed_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 ? &kKernels
                                                                                   : nullptr;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_avx2() {
  return nullptr;
}
}  // namespace llorch::compute

#endif
