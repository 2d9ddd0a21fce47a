// What opening tiles of codes with AVX-512 is made of: where groups go, looking codes up in
// registers, spreading levels to bytes. A part of packed_codes_avx512.cc, which alone includes it.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "compute/cpu/packed_codes.h"
#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

using tensor::DType;

struct alignas(64) Bytes {
  std::uint8_t v[64];
};

// For multishift: byte j of each row's four bytes is eight bits of the row's 32, from bit first + j
// · step on. They may begin before the 32: bits from elsewhere are then in places that nobody
// reads.
template <int first, int step>
constexpr Bytes make_fields() {
  Bytes bytes = {};
  for (int i = 0; i < 64; ++i)
    bytes.v[i] = static_cast<std::uint8_t>((first + i % 4 * step + i / 4 % 2 * 32) & 63);
  return bytes;
}
template <int first, int step>
constexpr Bytes kFields = make_fields<first, step>();

LLORCH_INLINE __m512i load(const void* p) {
  return _mm512_loadu_si512(p);
}
template <int first, int step>
LLORCH_INLINE __m512i fields(__m512i v) {
  return _mm512_multishift_epi64_epi8(load(&kFields<first, step>), v);
}
// A byte or a half word of each row as 32 bits.
LLORCH_INLINE __m512i load_bytes(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LLORCH_INLINE __m512i load_words(const std::uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LLORCH_INLINE __m512 load_halves(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Where groups of 32 k go: put_steps<half>() and put<step>() between begin() and end(). To records
// …
template <bool halves>
struct Records {
  std::uint8_t* out;

  LLORCH_INLINE void begin() {}
  template <int half>
  LLORCH_INLINE void put_steps(__m512 steps) {
    _mm512_storeu_ps(out + half * kVectorBytes, steps);
  }
  template <int step>
  LLORCH_INLINE void put(__m512i numbers) {
    _mm512_storeu_si512(out + (step + (halves ? 2 : 1)) * kVectorBytes, numbers);
  }
  LLORCH_INLINE void end() { out += (8 + (halves ? 2 : 1)) * kVectorBytes; }
};

// … or straight to the products with one row, in the order of all sums.
template <bool halves>
struct OneRow {
  const InputBlock* x;
  __m512 sums;
  __m512 steps[2];
  __m512i whole[2];

  LLORCH_INLINE void begin() {
    if constexpr (halves) {
      whole[0] = _mm512_slli_epi32(_mm512_set1_epi32(x->starts[3]), 2);
      whole[1] = _mm512_slli_epi32(_mm512_set1_epi32(x->starts[4]), 2);
    } else {
      whole[0] = _mm512_set1_epi32(x->starts[0]);
    }
  }
  template <int half>
  LLORCH_INLINE void put_steps(__m512 of_half) {
    steps[half] = of_half;
  }
  template <int step>
  LLORCH_INLINE void put(__m512i numbers) {
    std::int32_t values;
    __builtin_memcpy(&values, x->quants + 4 * step, sizeof(values));
    __m512i& sum = whole[halves ? step / 4 : 0];
    sum = _mm512_dpbusd_epi32(sum, numbers, _mm512_set1_epi32(values));
  }
  LLORCH_INLINE void end() {
    const __m512 scale = _mm512_set1_ps(x->scale);
    const __m512 first = _mm512_cvtepi32_ps(whole[0]);
    if constexpr (halves) {
      const __m512 both =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[1]), steps[1], _mm512_mul_ps(first, steps[0]));
      sums = _mm512_fmadd_ps(both, scale, sums);
    } else {
      sums = _mm512_fmadd_ps(first, _mm512_mul_ps(steps[0], scale), sums);
    }
    ++x;
  }
};

// Entry `index` of 2^bits bytes: its lowest seven bits in each byte, the others as masks.
template <int bits>
LLORCH_INLINE __m512i look_up(const std::uint8_t* table, __m512i index, const __mmask64* upper) {
  if constexpr (bits == 7) {
    return _mm512_permutex2var_epi8(load(table), index, load(table + 64));
  } else {
    return _mm512_mask_mov_epi8(look_up<bits - 1>(table, index, upper), upper[bits - 8],
                                look_up<bits - 1>(table + (1 << (bits - 1)), index, upper));
  }
}

template <int bits, std::size_t size>
LLORCH_INLINE void look_up(const PairedBook<size>& book, __m512i index, const __mmask64* upper,
                           __m512i* halves) {
  static_assert(size == 1 << bits);
  halves[0] = look_up<bits>(book.low, index, upper);
  halves[1] = look_up<bits>(book.high, index, upper);
}

// The eight signs of four times eight values from 7 bits each, a byte apart.
LLORCH_INLINE __m512i eight_signs(const CodeBooks& books, __m512i sevens) {
  return _mm512_permutex2var_epi8(load(books.signs), sevens, load(books.signs + 64));
}

// The numbers of a step: `level_bits` of `levels` for each, one bit above them of `other`.
template <int level_bits>
LLORCH_INLINE __m512i numbers(const NumberTable& table, __m512i levels, __m512i other) {
  constexpr int kSelect = 0xCA;  // bit by bit: the first one's choice between the others
  const __m512i mask = _mm512_set1_epi8((1 << level_bits) - 1);
  return _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(mask, levels, other, kSelect),
                                 load(&table));
}

// visit(std::integral_constant<int, 0>()) to 7.
template <class F>
LLORCH_INLINE void eight(const F& visit) {
  four(visit);
  four([&](auto s) __attribute__((always_inline)) { visit(std::integral_constant<int, s + 4>()); });
}

// 32 k of two-bit levels: byte j of a row's four has values 8j..8j + 3 in one half, the next four
// in the other; signs likewise.
template <class Sink>
LLORCH_INLINE void put_eights(const NumberTable& table, const __m512i* halves, __m512i signs,
                              Sink& sink) {
  four([&](auto j) __attribute__((always_inline)) {
    sink.template put<2 * j>(
        numbers<2>(table, fields<8 * j, 2>(halves[0]), fields<8 * j - 2, 1>(signs)));
    sink.template put<2 * j + 1>(
        numbers<2>(table, fields<8 * j, 2>(halves[1]), fields<8 * j + 2, 1>(signs)));
  });
}

// The same for IQ1, whose shifts have a sign in bit 2 of `shifts[j]`.
template <class Sink>
LLORCH_INLINE void put_shifted(const NumberTable& table, const __m512i* halves,
                               const __m512i* shifts, Sink& sink) {
  four([&](auto j) __attribute__((always_inline)) {
    sink.template put<2 * j>(numbers<2>(table, fields<8 * j, 2>(halves[0]), shifts[j]));
    sink.template put<2 * j + 1>(numbers<2>(table, fields<8 * j, 2>(halves[1]), shifts[j]));
  });
}

// Codes of four values each, four of a row in four bytes, in the order in which interleaving the
// halves of their entries gives two codes of two rows to each eight bytes.
constexpr Bytes make_order() {
  Bytes bytes = {};
  for (int i = 0; i < 64; ++i) {
    const int row = i % 8 / 2;
    const int code = i % 16 / 8 * 2 + i % 2;
    bytes.v[i] = static_cast<std::uint8_t>(4 * row + code);
  }
  return bytes;
}
constexpr Bytes kOrder = make_order();

// 16 k of three-bit levels, steps first..first + 3 of the signs.
template <int first, class Sink>
LLORCH_INLINE void put_fours(const NumberTable& table, const __m512i* halves, __m512i signs,
                             Sink& sink) {
  // Values of a code at bits 0, 3, 8, 11 of a word.
  constexpr auto kSpread = [](int at) {
    Bytes bytes = {};
    for (int i = 0; i < 64; ++i)
      bytes.v[i] = static_cast<std::uint8_t>(i % 4 / 2 * 8 + i % 2 * 3 + at + i / 4 % 2 * 32);
    return bytes;
  };
  static constexpr Bytes kEven = kSpread(0);
  static constexpr Bytes kOdd = kSpread(16);
  const __m512i low = _mm512_unpacklo_epi8(halves[0], halves[1]);
  const __m512i high = _mm512_unpackhi_epi8(halves[0], halves[1]);
  four([&](auto c) __attribute__((always_inline)) {
    const __m512i levels =
        _mm512_multishift_epi64_epi8(load(c % 2 == 0 ? &kEven : &kOdd), c / 2 == 0 ? low : high);
    sink.template put<first + c>(numbers<3>(table, levels, fields<4 * (first + c) - 3, 1>(signs)));
  });
}

// (0.5 + scale) · d · unit, and (2 · scale + 1) · d · unit; both exact.
LLORCH_INLINE __m512 half_steps(__m512 d, __m512i scale, float unit) {
  return _mm512_mul_ps(_mm512_add_ps(_mm512_cvtepi32_ps(scale), _mm512_set1_ps(0.5F)),
                       _mm512_mul_ps(d, _mm512_set1_ps(unit)));
}
LLORCH_INLINE __m512 odd_steps(__m512 d, __m512i scale, float unit) {
  return half_steps(d, scale, 2 * unit);
}
LLORCH_INLINE __m512i low_bits(__m512i v, int count) {
  return _mm512_and_si512(v, _mm512_set1_epi32((1 << count) - 1));
}
// The nibbles of a byte of each row, for 16 k each.
template <class Sink>
LLORCH_INLINE void put_nibble_steps(__m512 d, const std::uint8_t* scales, Sink& sink) {
  const __m512i both = load_bytes(scales);
  sink.template put_steps<0>(half_steps(d, low_bits(both, 4), 0.25F));
  sink.template put_steps<1>(half_steps(d, _mm512_srli_epi32(both, 4), 0.25F));
}

}  // namespace
}  // namespace llorch::compute
