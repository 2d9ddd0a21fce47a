// Tiles with AVX-512 and its dot products of bytes: one vector is 16 rows. Compiled for that set;
// it holds nothing that another file could be given by the linker.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "compute/cpu/packed_avx512_inl.h"

namespace llorch::compute {
namespace {

struct Tiles {
  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    Products<quant_layout(T), Rows, 1>::multiply(tile, x, blocks, out);
  }

  // The numbers of one of two k, which begin at p.
  template <DType T, int parity>
  static LLORCH_INLINE __m512 load_numbers(const std::uint8_t* p) {
    if constexpr (T == DType::BF16) {
      const __m512i pairs = _mm512_loadu_si512(p);
      return _mm512_castsi512_ps(parity == 0
                                     ? _mm512_slli_epi32(pairs, 16)
                                     : _mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
    }
    p += number_offset(T, parity, 0);
    return T == DType::F32 ? load_floats(p) : load_halves(p);
  }

  template <DType T, int Rows>
  static void numbers(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                      std::int64_t k, float* out) {
    constexpr std::int64_t kBytes = number_offset(T, 2, 0);
    __m512 even[std::size_t{Rows}], odd[std::size_t{Rows}];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += kBytes) {
      fetch_ahead<Rows, kBytes>(tile);
      const __m512 a = load_numbers<T, 0>(tile);
      const __m512 b = load_numbers<T, 1>(tile);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const float* row = x + r * x_stride + i;
        even[r] = _mm512_fmadd_ps(a, _mm512_set1_ps(row[0]), even[r]);
        odd[r] = _mm512_fmadd_ps(b, _mm512_set1_ps(row[1]), odd[r]);
      }
    }
    if (i < k) {
      const __m512 a = load_numbers<T, 0>(tile);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
        even[r] = _mm512_fmadd_ps(a, _mm512_set1_ps(x[r * x_stride + i]), even[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
      _mm512_storeu_ps(out + r * kTileRows, _mm512_add_ps(even[r], odd[r]));
  }
};

template <DType T>
void open_numbers(const std::uint8_t* tile, std::int64_t tile_bytes, std::int64_t tiles,
                  std::int64_t k, float* opened) {
  std::int64_t i = 0;
  for (; i + 2 <= k; i += 2, tile += number_offset(T, 2, 0)) {
    for (std::int64_t t = 0; t < tiles; ++t, opened += kTileRows) {
      _mm512_store_ps(opened, Tiles::load_numbers<T, 0>(tile + t * tile_bytes));
      _mm512_store_ps(opened + tiles * kTileRows, Tiles::load_numbers<T, 1>(tile + t * tile_bytes));
    }
    opened += tiles * kTileRows;
  }
  for (std::int64_t t = 0; i < k && t < tiles; ++t, opened += kTileRows)
    _mm512_store_ps(opened, Tiles::load_numbers<T, 0>(tile + t * tile_bytes));
}

// Every vector that is loaded serves as many products as registers allow: 24 sums of the 32.
template <int num_tiles, int num_rows>
void multiply_numbers(const float* opened, const float* x, std::int64_t x_stride, std::int64_t k,
                      bool from_zero, float* out) {
  constexpr std::size_t kTiles = num_tiles;
  constexpr std::size_t kRows = num_rows;
  TwoSums<num_tiles, num_rows> sums;
  sums.load(from_zero, out);
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
        sums.even[r][t] = _mm512_fmadd_ps(first[t], a, sums.even[r][t]);
        sums.odd[r][t] = _mm512_fmadd_ps(second[t], b, sums.odd[r][t]);
      }
    }
  }
  if (i < k) {
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
      const __m512 a = _mm512_set1_ps(x[static_cast<std::int64_t>(r) * x_stride + i]);
#pragma GCC unroll 2
      for (std::size_t t = 0; t < kTiles; ++t)
        sums.even[r][t] =
            _mm512_fmadd_ps(_mm512_load_ps(opened + t * kTileRows), a, sums.even[r][t]);
    }
  }
  sums.store(out);
}

void finish_numbers(const FinishedRows& rows) {
  const float* sums = rows.sums;
  float* out = rows.out;
  const bool has_bias = rows.bias != nullptr;
  const __m512 bias = has_bias ? _mm512_loadu_ps(rows.bias) : _mm512_setzero_ps();
  for (std::int64_t r = 0; r < rows.rows; ++r, sums += rows.stride, out += rows.out_stride) {
    __m512 sum = _mm512_add_ps(_mm512_load_ps(sums), _mm512_load_ps(sums + kTileRows));
    if (has_bias) sum = _mm512_add_ps(sum, bias);
    if (rows.accumulate) sum = _mm512_add_ps(_mm512_loadu_ps(out), sum);
    _mm512_storeu_ps(out, sum);
  }
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

std::int64_t spin_int8(std::int64_t rounds) {
  const __m512i ones = _mm512_set1_epi8(1);
  const auto add = [ones](__m512i sum) __attribute__((always_inline)) {
    return _mm512_dpbusd_epi32(sum, ones, ones);
  };
  return spin<12>(rounds, _mm512_setzero_si512(), add) * 64 * 2;
}

std::int64_t spin_float(std::int64_t rounds) {
  const __m512 half = _mm512_set1_ps(0.5F);
  const auto add = [half](__m512 sum) __attribute__((always_inline)) {
    return _mm512_fmadd_ps(sum, half, half);
  };
  return spin<12>(rounds, _mm512_setzero_ps(), add) * 16 * 2;
}

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) {
  __m512i sum = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < count; i += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(words + i) + kAheadBytes, _MM_HINT_T0);
    sum = _mm512_add_epi64(sum, _mm512_loadu_si512(words + i));
  }
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(sum));
}

template <QuantLayout kLayout, int rows, int tiles>
void multiply_pass(const QuantPass& pass) {
  Products<kLayout, rows, tiles>::pass(pass);
}
template <QuantLayout kLayout>
constexpr PassTable make_table() {
  PassTable table = {};
  const auto fill = [&]<int... less>(std::integer_sequence<int, less...>) {
    ((table.of[0][less] = multiply_pass<kLayout, less + 1, 1>), ...);
    ((table.of[1][less] = multiply_pass<kLayout, less + 1, 2>), ...);
  };
  fill(std::make_integer_sequence<int, kPassRows>());
  return table;
}
template <QuantLayout kLayout>
constexpr PassTable kPassTable = make_table<kLayout>();

// From so many rows on what opening costs is less than what unpacking for every panel does.
constexpr std::int64_t kRecordsFrom = 25;

constexpr QuantPasses make_passes() {
  QuantPasses passes = {.records_from = kRecordsFrom};
  with_each_quant_type([&](auto type) {
    constexpr QuantLayout kLayout = quant_layout(type());
    constexpr QuantLayout kRecord = record_layout(kLayout);
    const auto at = static_cast<std::size_t>(type());
    passes.tiles[at] = &kPassTable<kLayout>;
    passes.records[at] = &kPassTable<kRecord>;
    passes.open[at] = open<kLayout, bias_of(kRecord.bias)>;
  });
  with_each_code_type([&](auto type) {
    passes.records[static_cast<std::size_t>(type())] = &kPassTable<quant_layout(type())>;
  });
  return passes;
}

constexpr PackedKernels make_kernels(const CodeKernels& codes) {
  PackedKernels kernels{};
  kernels.codes = &codes;
  TileTables<Tiles>::fill(kernels);
  kernels.panel_rows = kPassRows;  // 12 sums of whole numbers and 12 of floats in 32 registers
  kernels.passes = make_passes();
  kernels.blocks = make_blocks();
  kernels.quantize = quantize;
  kernels.loops = {.int8 = spin_int8, .floats = spin_float, .sum_words = sum_words};
  return kernels;
}
constexpr PackedKernels kKernels = make_kernels(kCodesAvx2);
constexpr PackedKernels kVbmiKernels = make_kernels(kCodesAvx512);

}  // namespace

const PackedKernels* packed_avx512() {
  if (__builtin_cpu_supports("avx512vnni") == 0 || __builtin_cpu_supports("avx512bw") == 0 ||
      __builtin_cpu_supports("avx512vl") == 0 || __builtin_cpu_supports("avx512dq") == 0)
    return nullptr;
  return __builtin_cpu_supports("avx512vbmi") != 0 ? &kVbmiKernels : &kKernels;
}

OpenTile open_avx512(DType dtype) {
  OpenTile found = nullptr;
  with_quant_type(dtype, [&](auto type) { found = open<quant_layout(type()), 0>; });
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
