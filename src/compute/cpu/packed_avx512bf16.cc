// AVX-512 with its products of bfloat16 numbers, two for each sum in one instruction: BF16 tiles as
// they are meet rounded rows. All else as with AVX-512. Compiled for that set; it holds nothing
// that another file could be given by the linker.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <cmath>

#include "compute/cpu/packed_avx512_inl.h"

namespace llorch::compute {
namespace {

constexpr int kStepPairs = 16;  // of k, in a block of x

LLORCH_INLINE __m512bh load_pairs(const std::uint8_t* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}

// A few rows of x with one tile or two: even and odd pairs in sums of their own, 24 of the 32
// registers.
template <int num_tiles, int num_rows>
struct Pairs {
  using Sums = TwoSums<num_tiles, num_rows>;
  static constexpr std::size_t kTiles = num_tiles;
  static constexpr std::size_t kRows = num_rows;

  // Pair `pair` of a block: each tile's is used for all rows, each row's for all tiles.
  static LLORCH_INLINE void add(__m512 (&sums)[kRows][kTiles], const std::uint8_t* tile,
                                std::int64_t tile_bytes, const RoundedBlock* x, std::int64_t pair) {
    __m512bh numbers[kTiles];
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTiles; ++t)
      numbers[t] =
          load_pairs(tile + static_cast<std::int64_t>(t) * tile_bytes + pair * kVectorBytes);
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
      std::int32_t two;
      __builtin_memcpy(&two, x[r].values + 2 * pair, sizeof(two));
      const auto values = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
#pragma GCC unroll 2
      for (std::size_t t = 0; t < kTiles; ++t)
        sums[r][t] = _mm512_dpbf16_ps(sums[r][t], numbers[t], values);
    }
  }

  static void multiply(const std::uint8_t* tile, std::int64_t tile_bytes, const RoundedBlock* x,
                       std::int64_t k, bool from_zero, float* out) {
    Sums sums;
    sums.load(from_zero, out);
    std::int64_t pairs = (k + 1) / 2;
    for (; pairs >= kStepPairs; pairs -= kStepPairs) {
#pragma GCC unroll 4
      for (std::int64_t pair = 0; pair < kStepPairs; pair += 2) {
        if constexpr (num_tiles == 1) fetch_ahead<1, 2 * kVectorBytes>(tile + pair * kVectorBytes);
        add(sums.even, tile, tile_bytes, x, pair);
        add(sums.odd, tile, tile_bytes, x, pair + 1);
      }
      tile += kStepPairs * kVectorBytes;
      x += kRows;
    }
    std::int64_t pair = 0;
    for (; pair + 2 <= pairs; pair += 2) {
      add(sums.even, tile, tile_bytes, x, pair);
      add(sums.odd, tile, tile_bytes, x, pair + 1);
    }
    if (pair < pairs) add(sums.even, tile, tile_bytes, x, pair);
    sums.store(out);
  }
};

void round(const float* x, std::int64_t k, RoundedBlock* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += kInputBlock, out += stride) {
    const auto mask = static_cast<__mmask32>(k - i < kInputBlock ? (1U << (k - i)) - 1 : ~0U);
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x + i);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + i + 16);
    _mm512_store_si512(out->values, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
}

std::int64_t spin_bf16(std::int64_t rounds) {
  const auto halves = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F00));
  const auto add = [halves](__m512 sum) __attribute__((always_inline)) {
    return _mm512_dpbf16_ps(sum, halves, halves);
  };
  return spin<16>(rounds, _mm512_setzero_ps(), add) * 32 * 2;
}

bool has_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAvx512Bf16 = 1U << 5;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvx512Bf16) != 0;
}

// One sum: the numbers of a pair that meet, as floats that are bfloat16 too, and what comes out.
struct Example {
  float sum, first[2], second[2], expected;
};
// Whether sums are made as RoundedNumbers says, which Intel documents and others could do
// otherwise: machines of one device class give the same bits.
bool adds_as_documented() {
  constexpr float kUlp = 0x1p-23F;
  constexpr Example kExamples[] = {
      // Half an ulp is lost, twice; a sum of both products would not be.
      {1, {0x1p-12F, 0x1p-12F}, {0x1p-12F, 0x1p-12F}, 1},
      // Half an ulp is lost, then a little more is not; the other way round would end at 1 + 2 ulp.
      {1, {0x1p-12F, 0x1.02p-12F}, {0x1p-12F, 0x1p-12F}, 1 + kUlp},
      {1, {0x1p-12F, 0x1p-12F}, {0x1p-12F, 0x1.02p-12F}, 1 + 2 * kUlp},
      // What is no normal number is zero: a sum, a number, a sum that was.
      {0, {0, 0}, {0x1p-100F, 0x1p-30F}, 0},
      {0, {0x1p-130F, 0x1p100F}, {0, 0}, 0},
      {0x1p-130F, {0, 0}, {0, 0}, 0},
  };
  for (const Example& example : kExamples) {
    const auto pair = [&](int side) {
      const auto bits = [](float value) {
        std::uint32_t word;
        __builtin_memcpy(&word, &value, sizeof(word));
        return word;
      };
      const std::uint32_t both =
          bits(example.first[side]) >> 16 | (bits(example.second[side]) & 0xFFFF0000U);
      return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<std::int32_t>(both)));
    };
    const __m512 sum = _mm512_dpbf16_ps(_mm512_set1_ps(example.sum), pair(0), pair(1));
    if (_mm512_cvtss_f32(sum) != example.expected) return false;
  }
  return true;
}

PackedKernels make_kernels(const PackedKernels& avx512) {
  PackedKernels kernels = avx512;
  const auto fill = [&]<int... less>(std::integer_sequence<int, less...>) {
    ((kernels.blocks.multiply_rounded[0][less] = Pairs<1, less + 1>::multiply), ...);
    ((kernels.blocks.multiply_rounded[1][less] = Pairs<2, less + 1>::multiply), ...);
  };
  fill(std::make_integer_sequence<int, kNumberRows>());
  kernels.round = round;
  kernels.loops.bf16 = spin_bf16;
  return kernels;
}

}  // namespace

const PackedKernels* packed_avx512bf16() {
  const PackedKernels* avx512 = packed_avx512();
  if (avx512 == nullptr || !has_bf16() || !adds_as_documented()) return nullptr;
  static const PackedKernels kernels = make_kernels(*avx512);
  return &kernels;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_avx512bf16() {
  return nullptr;
}
}  // namespace llorch::compute

#endif
