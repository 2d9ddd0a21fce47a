// Tiles with AVX-512 and its dot products of bytes: one vector is 16 rows. Compiled for that set;
// it holds nothing that another file could be given by the linker.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace llorch::compute {
namespace {

using tensor::DType;

#define LLORCH_INLINE inline __attribute__((always_inline))

LLORCH_INLINE __m512 load_halves(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LLORCH_INLINE __m512 load_bytes(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Bits at `from` of each byte moved to `to`, the others cleared.
template <int from, int to, int width>
LLORCH_INLINE __m512i move_bits(__m512i v) {
  if constexpr (from > to) v = _mm512_srli_epi16(v, from - to);
  if constexpr (from < to) v = _mm512_slli_epi16(v, to - from);
  return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(((1 << width) - 1) << to)));
}

// The numbers of step s, ready to be multiplied.
template <DType T, int s>
LLORCH_INLINE __m512i load_step(const std::uint8_t* vectors) {
  constexpr QuantLayout kLayout = quant_layout(T);
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

template <int first, int last>
LLORCH_INLINE __m512i dot(__m512i sum, const __m512i* numbers, const std::int8_t* quants) {
#pragma GCC unroll 8
  for (int s = first; s < last; ++s) {
    std::int32_t four;
    __builtin_memcpy(&four, quants + 4 * s, sizeof(four));
    sum = _mm512_dpbusd_epi32(sum, numbers[s], _mm512_set1_epi32(four));
  }
  return sum;
}

// What scales 32 k: one step, or one for each half; minimums likewise.
struct Scales {
  __m512 step[2];
  __m512 min[2];
};

template <QuantLayout kLayout>
LLORCH_INLINE __m512 add_block(__m512 sum, const __m512i* numbers, const Scales& scales,
                               const InputBlock& x) {
  const __m512 scale = _mm512_set1_ps(x.scale);
  if constexpr (kLayout.halves) {
    constexpr bool kBiased = kLayout.bias == NumberBias::Halves32;
    const __m512i low = _mm512_set1_epi32(x.starts[3]);
    const __m512i high = _mm512_set1_epi32(x.starts[4]);
    const __m512i zero = _mm512_setzero_si512();
    const __m512 a = _mm512_cvtepi32_ps(dot<0, 4>(kBiased ? low : zero, numbers, x.quants));
    const __m512 b = _mm512_cvtepi32_ps(dot<4, 8>(kBiased ? high : zero, numbers, x.quants));
    __m512 t = _mm512_fmadd_ps(b, scales.step[1], _mm512_mul_ps(a, scales.step[0]));
    if constexpr (kLayout.has_min) {
      t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(low), scales.min[0], t);
      t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), scales.min[1], t);
    }
    return _mm512_fmadd_ps(t, scale, sum);
  } else {
    __m512i start = _mm512_setzero_si512();
    if constexpr (kLayout.bias != NumberBias::None)
      start = _mm512_set1_epi32(x.starts[static_cast<int>(kLayout.bias)]);
    const __m512 whole = _mm512_cvtepi32_ps(dot<0, 8>(start, numbers, x.quants));
    sum = _mm512_fmadd_ps(whole, _mm512_mul_ps(scales.step[0], scale), sum);
    if constexpr (kLayout.has_min) {
      const __m512 total = _mm512_set1_ps(x.scaled_sum);
      sum = kLayout.subtracts_min ? _mm512_fnmadd_ps(scales.min[0], total, sum)
                                  : _mm512_fmadd_ps(scales.min[0], total, sum);
    }
    return sum;
  }
}

// The numbers of 32 k, ready to be multiplied.
template <DType T>
LLORCH_INLINE void load_group(const std::uint8_t* vectors, __m512i* numbers) {
  const auto all = [&]<int... s>(std::integer_sequence<int, s...>) __attribute__((always_inline)) {
    ((numbers[s] = load_step<T, s>(vectors)), ...);
  };
  all(std::make_integer_sequence<int, 8>());
}

// Calls visit(numbers, scales) for each 32 k of a tile that is read for so many rows.
template <DType T, int rows, class F>
LLORCH_INLINE void each_group(const std::uint8_t* tile, std::int64_t blocks, const F& visit) {
  constexpr QuantLayout kLayout = quant_layout(T);
  __m512i numbers[8];
  Scales scales;
  if constexpr (kLayout.elems == 32) {
    for (std::int64_t b = 0; b < blocks; ++b, tile += kLayout.record_bytes()) {
      fetch_ahead<rows, kLayout.record_bytes()>(tile);
      scales.step[0] = load_halves(tile);
      if constexpr (kLayout.has_min) scales.min[0] = load_halves(tile + kTileRows * 2);
      load_group<T>(tile + kLayout.head_bytes(), numbers);
      visit(numbers, scales);
    }
  } else {
    for (std::int64_t b = 0; b < blocks; b += 8) {
      // Powers of two change nothing but the exponent: of `up`, and of starts that are 32 times a
      // sum.
      const __m512 step =
          _mm512_mul_ps(load_halves(tile), _mm512_set1_ps(1.0F / (1 << kLayout.up)));
      __m512 min = step;
      if constexpr (kLayout.has_min) min = load_halves(tile + kTileRows * 2);
      if constexpr (kLayout.has_min && kLayout.halves)
        min = _mm512_mul_ps(min, _mm512_set1_ps(1.0F / 32));
      tile += kLayout.head_bytes();
      constexpr int kScales = kLayout.halves ? 2 : 1;
      for (int g = 0; g < 8; ++g) {
        fetch_ahead<rows, kLayout.scale_bytes() + kLayout.number_bytes()>(tile);
        for (int s = 0; s < kScales; ++s) {
          scales.step[s] = _mm512_mul_ps(step, load_bytes(tile + s * kTileRows));
          if constexpr (kLayout.has_min)
            scales.min[s] = _mm512_mul_ps(min, load_bytes(tile + (kScales + s) * kTileRows));
        }
        load_group<T>(tile + kLayout.scale_bytes(), numbers);
        visit(numbers, scales);
        tile += kLayout.scale_bytes() + kLayout.number_bytes();
      }
    }
  }
}

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

// Numbers become signed bytes, minimums additions.
template <DType T>
void open(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kScales = kLayout.halves ? 2 : 1;
  constexpr bool kNegates = kLayout.subtracts_min && !kLayout.halves;
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(bias_of(kLayout.bias)));
  each_group<T, 1>(
      tile,
      blocks, [&](const __m512i* numbers, const Scales& scales) __attribute__((always_inline)) {
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
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) put(_mm512_sub_epi8(numbers[s], bias));
      });
}

struct Tiles {
  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    __m512 sums[std::size_t{Rows}];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) sums[r] = _mm512_setzero_ps();
    each_group<T, Rows>(
        tile,
        blocks, [&](const __m512i* numbers, const Scales& scales) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r)
            sums[r] = add_block<quant_layout(T)>(sums[r], numbers, scales, x[r]);
          x += Rows;
        });
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) _mm512_storeu_ps(out + r * kTileRows, sums[r]);
  }

  template <DType T>
  static LLORCH_INLINE __m512 load_numbers(const std::uint8_t* p) {
    if constexpr (T == DType::F32) return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
    if constexpr (T == DType::F16) return load_halves(p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
  }

  template <DType T, int Rows>
  static void numbers(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                      std::int64_t k, float* out) {
    constexpr std::int64_t kBytes = kTileRows * (T == DType::F32 ? 4 : 2);
    __m512 even[std::size_t{Rows}], odd[std::size_t{Rows}];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += 2 * kBytes) {
      fetch_ahead<Rows, 2 * kBytes>(tile);
      const __m512 a = load_numbers<T>(tile);
      const __m512 b = load_numbers<T>(tile + kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const float* row = x + r * x_stride + i;
        even[r] = _mm512_fmadd_ps(a, _mm512_set1_ps(row[0]), even[r]);
        odd[r] = _mm512_fmadd_ps(b, _mm512_set1_ps(row[1]), odd[r]);
      }
    }
    if (i < k) {
      const __m512 a = load_numbers<T>(tile);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
        even[r] = _mm512_fmadd_ps(a, _mm512_set1_ps(x[r * x_stride + i]), even[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
      _mm512_storeu_ps(out + r * kTileRows, _mm512_add_ps(even[r], odd[r]));
  }

  template <DType T>
  static void pair(const std::uint8_t* tile, const float* x, std::int64_t, std::int64_t k,
                   float* out) {
    constexpr std::int64_t kBytes = kTileRows * (T == DType::F32 ? 4 : 2);
    __m512 even[2], odd[2];
    for (int t = 0; t < 2; ++t) even[t] = odd[t] = _mm512_setzero_ps();
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += 2 * kBytes) {
      const __m512 first = _mm512_set1_ps(x[i]);
      const __m512 second = _mm512_set1_ps(x[i + 1]);
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const std::uint8_t* at = tile + t * k * kBytes;
        fetch_ahead<1, 2 * kBytes>(at);
        even[t] = _mm512_fmadd_ps(load_numbers<T>(at), first, even[t]);
        odd[t] = _mm512_fmadd_ps(load_numbers<T>(at + kBytes), second, odd[t]);
      }
    }
    for (int t = 0; t < 2; ++t) {
      if (i < k) {
        even[t] =
            _mm512_fmadd_ps(load_numbers<T>(tile + t * k * kBytes), _mm512_set1_ps(x[i]), even[t]);
      }
      _mm512_storeu_ps(out + t * kTileRows, _mm512_add_ps(even[t], odd[t]));
    }
  }
};

template <DType T>
void open_numbers(const std::uint8_t* tile, std::int64_t tile_bytes, std::int64_t tiles,
                  std::int64_t k, float* opened) {
  constexpr std::int64_t kBytes = kTileRows * (T == DType::F32 ? 4 : 2);
  for (std::int64_t i = 0; i < k; ++i, tile += kBytes) {
    for (std::int64_t t = 0; t < tiles; ++t, opened += kTileRows)
      _mm512_store_ps(opened, Tiles::load_numbers<T>(tile + t * tile_bytes));
  }
}

// Every vector that is loaded serves as many products as registers allow: 24 sums of the 32.
template <int num_tiles, int num_rows>
void multiply_numbers(const float* opened, const float* x, std::int64_t x_stride, std::int64_t k,
                      bool from_zero, float* out) {
  constexpr std::size_t kTiles = num_tiles;
  constexpr std::size_t kRows = num_rows;
  __m512 even[kRows][kTiles], odd[kRows][kTiles];
#pragma GCC unroll 6
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTiles; ++t) {
      const float* sums = out + (r * kTiles + t) * 2 * kTileRows;
      even[r][t] = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(sums);
      odd[r][t] = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(sums + kTileRows);
    }
  }
  std::int64_t i = 0;
  for (; i + 2 <= k; i += 2, opened += 2 * kTiles * kTileRows) {
    __m512 first[kTiles], second[kTiles];
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTiles; ++t) {
      first[t] = _mm512_load_ps(opened + t * kTileRows);
      second[t] = _mm512_load_ps(opened + (kTiles + t) * kTileRows);
    }
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
      const float* row = x + static_cast<std::int64_t>(r) * x_stride + i;
      const __m512 a = _mm512_set1_ps(row[0]);
      const __m512 b = _mm512_set1_ps(row[1]);
#pragma GCC unroll 2
      for (std::size_t t = 0; t < kTiles; ++t) {
        even[r][t] = _mm512_fmadd_ps(first[t], a, even[r][t]);
        odd[r][t] = _mm512_fmadd_ps(second[t], b, odd[r][t]);
      }
    }
  }
#pragma GCC unroll 6
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTiles; ++t) {
      if (i < k) {
        const __m512 a = _mm512_set1_ps(x[static_cast<std::int64_t>(r) * x_stride + i]);
        even[r][t] = _mm512_fmadd_ps(_mm512_load_ps(opened + t * kTileRows), a, even[r][t]);
      }
      float* sums = out + (r * kTiles + t) * 2 * kTileRows;
      _mm512_store_ps(sums, even[r][t]);
      _mm512_store_ps(sums + kTileRows, odd[r][t]);
    }
  }
}

void finish_numbers(const float* sums, std::int64_t stride, std::int64_t rows, float* out) {
  for (std::int64_t r = 0; r < rows; ++r, sums += stride * 2 * kTileRows, out += kTileRows)
    _mm512_store_ps(out, _mm512_add_ps(_mm512_load_ps(sums), _mm512_load_ps(sums + kTileRows)));
}

constexpr NumberBlocks make_blocks() {
  NumberBlocks blocks = {.from = 25, .rows = 6, .tiles = 2};
  blocks.finish = finish_numbers;
  blocks.open[static_cast<int>(DType::F32)] = open_numbers<DType::F32>;
  blocks.open[static_cast<int>(DType::F16)] = open_numbers<DType::F16>;
  blocks.open[static_cast<int>(DType::BF16)] = open_numbers<DType::BF16>;
  const auto fill = [&]<int... less>(std::integer_sequence<int, less...>) {
    ((blocks.multiply[0][less] = multiply_numbers<1, less + 1>), ...);
    ((blocks.multiply[1][less] = multiply_numbers<2, less + 1>), ...);
  };
  fill(std::make_integer_sequence<int, 6>());
  return blocks;
}

LLORCH_INLINE std::int32_t sum_bytes(__m256i bytes) {
  // Σ (q + 128) as unsigned bytes, less what was added.
  const __m256i sums =
      _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const __m128i both =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return static_cast<std::int32_t>(_mm_cvtsi128_si32(both) + _mm_extract_epi32(both, 2)) - 32 * 128;
}

void quantize(const float* x, std::int64_t k, InputBlock* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += kInputBlock, x += kInputBlock, out += stride) {
    const __m512 a = _mm512_loadu_ps(x);
    const __m512 b = _mm512_loadu_ps(x + 16);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    // Largest is as good as any other where a value is NaN: asked for apart.
    const __mmask16 odd =
        static_cast<__mmask16>(_mm512_fpclass_ps_mask(a, 0x99) | _mm512_fpclass_ps_mask(b, 0x99));
    if (odd != 0 || largest < 4e-37F) {
      quantize_block(x, *out);
      continue;
    }
    const __m512 inverse = _mm512_set1_ps(127.0F / largest);
    const __m128i first = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    const __m128i second = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out->quants), first);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out->quants + 16), second);
    const __m256i zero = _mm256_setzero_si256();
    const std::int32_t low = sum_bytes(_mm256_inserti128_si256(zero, first, 0));
    const std::int32_t high = sum_bytes(_mm256_inserti128_si256(zero, second, 0));
    finish_block(largest / 127.0F, low, high, *out);
  }
}

constexpr int kChains = 12;  // more than the multipliers' latency times their number

std::int64_t spin_int8(std::int64_t rounds) {
  __m512i sums[kChains];
  // Unrolled too, or the sums would live in memory and the loop wait for it.
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i ones = _mm512_set1_epi8(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], ones, ones);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return rounds * kChains * 64 * 2;
}

std::int64_t spin_float(std::int64_t rounds) {
  __m512 sums[kChains];
  // Unrolled too, or the sums would live in memory and the loop wait for it.
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_setzero_ps();
  const __m512 half = _mm512_set1_ps(0.5F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_fmadd_ps(sums[i], half, half);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return rounds * kChains * 16 * 2;
}

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) {
  constexpr int kStreams = 4;
  constexpr std::int64_t kWords = 8;
  const std::int64_t each = count / kWords / kStreams * kWords;
  __m512i sums[kStreams];
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) sums[s] = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < each; i += kWords) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::uint64_t* at = words + s * each + i;
      _mm_prefetch(reinterpret_cast<const char*>(at) + kAheadBytes, _MM_HINT_T0);
      sums[s] = _mm512_add_epi64(sums[s], _mm512_loadu_si512(at));
    }
  }
  std::uint64_t sum = 0;
  for (std::int64_t i = kStreams * each; i < count; ++i) sum += words[i];
  for (const __m512i& part : sums) sum += static_cast<std::uint64_t>(_mm512_reduce_add_epi64(part));
  return sum;
}

constexpr PackedKernels make_kernels() {
  PackedKernels kernels{};
  TileTables<Tiles>::fill(kernels);
  kernels.pairs[static_cast<int>(DType::F32)] = Tiles::pair<DType::F32>;
  kernels.pairs[static_cast<int>(DType::F16)] = Tiles::pair<DType::F16>;
  kernels.pairs[static_cast<int>(DType::BF16)] = Tiles::pair<DType::BF16>;
  kernels.blocks = make_blocks();
  kernels.quantize = quantize;
  kernels.spin_int8 = spin_int8;
  kernels.spin_float = spin_float;
  kernels.sum_words = sum_words;
  return kernels;
}
constexpr PackedKernels kKernels = make_kernels();

}  // namespace

const PackedKernels* packed_avx512() {
  return __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                 __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0
             ? &kKernels
             : nullptr;
}

OpenTile open_avx512(DType dtype) {
  OpenTile found = nullptr;
  with_quant_type(dtype, [&](auto type) { found = open<type()>; });
  return found;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_avx512() {
  return nullptr;
}
OpenTile open_avx512(tensor::DType) {
  return nullptr;
}
}  // namespace llorch::compute

#endif
