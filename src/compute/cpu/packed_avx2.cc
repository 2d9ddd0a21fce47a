// Tiles with AVX2, FMA and F16C: a vector is half a tile, rows 0 to 7 or 8 to 15. Compiled for that
// set; it holds nothing that another file could be given by the linker.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "compute/cpu/packed_avx2_inl.h"

namespace llorch::compute {
namespace {

struct Tiles : HalfTiles<false> {
  // Half of a tile's numbers of one of two k, whose own begin at p.
  template <DType T, int parity>
  static LLORCH_INLINE __m256 load_numbers(const std::uint8_t* p) {
    if constexpr (T == DType::BF16) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return _mm256_castsi256_ps(parity == 0
                                     ? _mm256_slli_epi32(pairs, 16)
                                     : _mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
    }
    p += number_offset(T, parity, 0);
    if constexpr (T == DType::F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    return load_halves(p);
  }

  // `Rows` rows, 12 registers of sums at most.
  template <DType T, int Rows>
  static LLORCH_INLINE void half_numbers(const std::uint8_t* tile, const float* x,
                                         std::int64_t x_stride, std::int64_t k, float* out) {
    constexpr std::int64_t kBytes = number_offset(T, 2, 0);
    __m256 even[std::size_t{Rows}], odd[std::size_t{Rows}];
    for (int r = 0; r < Rows; ++r) even[r] = odd[r] = _mm256_setzero_ps();
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += kBytes) {
      fetch_ahead<Rows, kBytes>(tile);
      const __m256 a = load_numbers<T, 0>(tile);
      const __m256 b = load_numbers<T, 1>(tile);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const float* row = x + r * x_stride + i;
        even[r] = _mm256_fmadd_ps(a, _mm256_set1_ps(row[0]), even[r]);
        odd[r] = _mm256_fmadd_ps(b, _mm256_set1_ps(row[1]), odd[r]);
      }
    }
    if (i < k) {
      const __m256 a = load_numbers<T, 0>(tile);
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
    constexpr std::int64_t kHalf = number_offset(T, 0, kTileRows / 2);
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
  constexpr std::int64_t kHalf = kTileRows / 2;
  constexpr std::int64_t kHalfBytes = number_offset(T, 0, kHalf);
  std::int64_t i = 0;
  for (; i + 2 <= k; i += 2, tile += number_offset(T, 2, 0), opened += 2 * kTileRows) {
    _mm256_store_ps(opened, Tiles::load_numbers<T, 0>(tile));
    _mm256_store_ps(opened + kHalf, Tiles::load_numbers<T, 0>(tile + kHalfBytes));
    _mm256_store_ps(opened + kTileRows, Tiles::load_numbers<T, 1>(tile));
    _mm256_store_ps(opened + kTileRows + kHalf, Tiles::load_numbers<T, 1>(tile + kHalfBytes));
  }
  if (i < k) {
    _mm256_store_ps(opened, Tiles::load_numbers<T, 0>(tile));
    _mm256_store_ps(opened + kHalf, Tiles::load_numbers<T, 0>(tile + kHalfBytes));
  }
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

void finish_numbers(const FinishedRows& rows) {
  const float* sums = rows.sums;
  float* out = rows.out;
  for (std::int64_t r = 0; r < rows.rows; ++r, sums += rows.stride, out += rows.out_stride) {
    for (int at = 0; at < kTileRows; at += 8) {
      __m256 sum = _mm256_add_ps(_mm256_load_ps(sums + at), _mm256_load_ps(sums + kTileRows + at));
      if (rows.bias != nullptr) sum = _mm256_add_ps(sum, _mm256_loadu_ps(rows.bias + at));
      if (rows.accumulate) sum = _mm256_add_ps(_mm256_loadu_ps(out + at), sum);
      _mm256_storeu_ps(out + at, sum);
    }
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

// Eight pairs of products summed in 16 bits for each widening, as Q4_0 does.
std::int64_t spin_int8(std::int64_t rounds) {
  const __m256i ones = _mm256_set1_epi8(1);
  const auto add = [ones](__m256i sum) __attribute__((always_inline)) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, sum));
  };
  return spin<12>(rounds, _mm256_setzero_si256(), add) * 32 * 2;
}

std::int64_t spin_float(std::int64_t rounds) {
  const __m256 half = _mm256_set1_ps(0.5F);
  const auto add = [half](__m256 sum) __attribute__((always_inline)) {
    return _mm256_fmadd_ps(sum, half, half);
  };
  return spin<12>(rounds, _mm256_setzero_ps(), add) * 8 * 2;
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
  kernels.codes = &kCodesAvx2;
  TileTables<Tiles, HalfTileRows>::fill(kernels);
  kernels.panel_rows = kHalfRows;
  kernels.blocks = make_blocks();
  kernels.quantize = quantize;
  kernels.loops = {.int8 = spin_int8, .floats = spin_float, .sum_words = sum_words};
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
