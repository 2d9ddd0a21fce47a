// Tiles of codes opened with AVX-512 and VBMI: books lie in registers, or nearly so, and 64 codes
// are looked up at once, half of an entry by half. The levels of four values, side by side in a few
// bits, are spread to four bytes by one instruction each. Compiled for that set; it holds nothing
// that another file could be given by the linker.
#include "compute/cpu/packed_codes.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "compute/cpu/packed_codes_avx512_inl.h"

namespace llorch::compute {
namespace {

// Group g of a record; d is the record's. b · 16 is where the 16 rows' units begin
// that are the file's at byte b.
template <DType T>
struct Group;

template <>
struct Group<DType::IQ2_XXS> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    const __m512i codes = load(record + kTileRows * (2 + 8 * g));
    const __m512i rest = load(record + kTileRows * (6 + 8 * g));
    sink.template put_steps<0>(half_steps(d, _mm512_srli_epi32(rest, 28), 0.25F));
    const __mmask64 upper = _mm512_movepi8_mask(codes);
    __m512i halves[2];
    look_up<8>(books.iq2_xxs, codes, &upper, halves);
    put_eights(books.iq2_numbers, halves, eight_signs(books, fields<0, 7>(rest)), sink);
  }
};

// Bytes at 2j + which of a row's eight, which are four in one vector and four in the next.
constexpr Bytes make_every_other(int which) {
  Bytes bytes = {};
  for (int i = 0; i < 64; ++i)
    bytes.v[i] = static_cast<std::uint8_t>(i % 4 / 2 * 64 + i / 4 * 4 + i % 2 * 2 + which);
  return bytes;
}

template <>
struct Group<DType::IQ2_XS> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    static constexpr Bytes kLow = make_every_other(0);
    static constexpr Bytes kHigh = make_every_other(1);
    const __m512i first = load(record + kTileRows * (2 + 8 * g));
    const __m512i second = load(record + kTileRows * (6 + 8 * g));
    const __m512i codes = _mm512_permutex2var_epi8(first, load(&kLow), second);
    const __m512i rest = _mm512_permutex2var_epi8(first, load(&kHigh), second);
    put_nibble_steps(d, record + kTileRows * (66 + g), sink);
    const __mmask64 upper[] = {_mm512_movepi8_mask(codes),
                               _mm512_test_epi8_mask(rest, _mm512_set1_epi8(1))};
    __m512i halves[2];
    look_up<9>(books.iq2_xs, codes, upper, halves);
    put_eights(books.iq2_numbers, halves, eight_signs(books, _mm512_srli_epi16(rest, 1)), sink);
  }
};

template <>
struct Group<DType::IQ2_S> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    const __m512i codes = load(record + kTileRows * (2 + 4 * g));
    const __m512i signs = load(record + kTileRows * (34 + 4 * g));
    const __m512i high = fields<0, 2>(load_bytes(record + kTileRows * (66 + g)));
    put_nibble_steps(d, record + kTileRows * (74 + g), sink);
    const __mmask64 upper[] = {_mm512_movepi8_mask(codes),
                               _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
                               _mm512_test_epi8_mask(high, _mm512_set1_epi8(2))};
    __m512i halves[2];
    look_up<10>(books.iq2_s, codes, upper, halves);
    put_eights(books.iq2_numbers, halves, signs, sink);
  }
};

template <>
struct Group<DType::IQ3_XXS> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    const __m512i rest = load(record + kTileRows * (66 + 4 * g));
    sink.template put_steps<0>(half_steps(d, _mm512_srli_epi32(rest, 28), 0.5F));
    const __m512i signs = eight_signs(books, fields<0, 7>(rest));
    const auto half = [&]<int h>() __attribute__((always_inline)) {
      const __m512i codes =
          _mm512_shuffle_epi8(load(record + kTileRows * (2 + 8 * g + 4 * h)), load(&kOrder));
      const __mmask64 upper = _mm512_movepi8_mask(codes);
      __m512i halves[2];
      look_up<8>(books.iq3_xxs, codes, &upper, halves);
      put_fours<4 * h>(books.iq3_xxs_numbers, halves, signs, sink);
    };
    half.template operator()<0>();
    half.template operator()<1>();
  }
};

// For each code in that order: its row, and its bit of eight that begin at `first`.
constexpr Bytes make_rows() {
  Bytes bytes = {};
  for (int i = 0; i < 64; ++i) bytes.v[i] = static_cast<std::uint8_t>(i / 16 * 4 + i % 8 / 2);
  return bytes;
}
constexpr Bytes make_ninth_bits(int first) {
  Bytes bytes = {};
  for (int i = 0; i < 64; ++i)
    bytes.v[i] = static_cast<std::uint8_t>(1 << (first + i % 16 / 8 * 2 + i % 2));
  return bytes;
}

template <>
struct Group<DType::IQ3_S> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    static constexpr Bytes kRows = make_rows();
    static constexpr Bytes kBits[] = {make_ninth_bits(0), make_ninth_bits(4)};
    const __m512i signs = load(record + kTileRows * (74 + 4 * g));
    const __m512i scales = load_bytes(record + kTileRows * (106 + g / 2));
    const __m128i shift = _mm_cvtsi32_si128(g % 2 * 4);
    sink.template put_steps<0>(odd_steps(d, low_bits(_mm512_srl_epi32(scales, shift), 4), 1.0F));
    const __m512i ninth = _mm512_permutexvar_epi8(
        load(&kRows), _mm512_castsi128_si512(_mm_loadu_si128(
                          reinterpret_cast<const __m128i*>(record + kTileRows * (66 + g)))));
    const auto half = [&]<int h>() __attribute__((always_inline)) {
      const __m512i codes =
          _mm512_shuffle_epi8(load(record + kTileRows * (2 + 8 * g + 4 * h)), load(&kOrder));
      const __mmask64 upper[] = {_mm512_movepi8_mask(codes),
                                 _mm512_test_epi8_mask(ninth, load(&kBits[h]))};
      __m512i halves[2];
      look_up<9>(books.iq3_s, codes, upper, halves);
      put_fours<4 * h>(books.iq3_s_numbers, halves, signs, sink);
    };
    half.template operator()<0>();
    half.template operator()<1>();
  }
};

// Codes of 11 bits, the upper three of each in the lowest bits of a byte.
LLORCH_INLINE void look_up_iq1(const CodeBooks& books, __m512i codes, __m512i high,
                               __m512i* halves) {
  const __mmask64 upper[] = {_mm512_movepi8_mask(codes),
                             _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
                             _mm512_test_epi8_mask(high, _mm512_set1_epi8(2)),
                             _mm512_test_epi8_mask(high, _mm512_set1_epi8(4))};
  look_up<11>(books.iq1, codes, upper, halves);
}

template <>
struct Group<DType::IQ1_S> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    const __m512i rest = load_words(record + kTileRows * (34 + 2 * g));
    sink.template put_steps<0>(odd_steps(d, low_bits(_mm512_srli_epi32(rest, 12), 3), 0.125F));
    __m512i halves[2];
    look_up_iq1(books, load(record + kTileRows * (2 + 4 * g)), fields<0, 3>(rest), halves);
    const __m512i shift = fields<15 - 2, 0>(rest);
    const __m512i shifts[] = {shift, shift, shift, shift};
    put_shifted(books.iq1_numbers, halves, shifts, sink);
  }
};

template <>
struct Group<DType::IQ1_M> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g,
                                 __m512 d, Sink& sink) {
    const __m512i rest = load_words(record + kTileRows * (32 + 2 * g));
    const __m128i shift = _mm_cvtsi32_si128(g % 2 * 6);
    const __m512i scales =
        _mm512_srl_epi32(load_words(record + kTileRows * (48 + g / 2 * 2)), shift);
    sink.template put_steps<0>(odd_steps(d, low_bits(scales, 3), 0.125F));
    sink.template put_steps<1>(odd_steps(d, low_bits(_mm512_srli_epi32(scales, 3), 3), 0.125F));
    __m512i halves[2];
    look_up_iq1(books, load(record + kTileRows * (4 * g)), fields<0, 4>(rest), halves);
    const __m512i shifts[] = {fields<3 - 2, 0>(rest), fields<7 - 2, 0>(rest),
                              fields<11 - 2, 0>(rest), fields<15 - 2, 0>(rest)};
    put_shifted(books.iq1_numbers, halves, shifts, sink);
  }
};

// Two bits at a time, four groups from the same vectors.
template <>
struct Group<DType::TQ2_0> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks&, const std::uint8_t* record, int g, __m512 d,
                                 Sink& sink) {
    sink.template put_steps<0>(d);
    const __m128i shift = _mm_cvtsi32_si128(g % 4 * 2);
    eight([&](auto s) __attribute__((always_inline)) {
      const __m512i four = load(record + kTileRows * (g / 4 * 32 + 4 * s));
      const __m512i digits = _mm512_and_si512(_mm512_srl_epi16(four, shift), _mm512_set1_epi8(3));
      sink.template put<s>(_mm512_add_epi8(digits, _mm512_set1_epi8(127)));
    });
  }
};

// Bytes are fractions of 256 in base three: digit n of each, -1 + 128 or one or two more.
LLORCH_INLINE __m512i ternary_digits(__m512i fractions, int n) {
  constexpr std::int16_t kPowers[] = {1, 3, 9, 27, 81};
  const __m512i power = _mm512_set1_epi16(kPowers[n]);
  const __m512i upper = _mm512_set1_epi16(-256);
  const __m512i even = _mm512_andnot_si512(upper, _mm512_mullo_epi16(fractions, power));
  const __m512i odd = _mm512_mullo_epi16(_mm512_and_si512(upper, fractions), power);
  const __m512i shifted = _mm512_or_si512(even, odd);
  const __m512i one = _mm512_set1_epi8(1);
  __m512i digits = _mm512_set1_epi8(127);
  digits = _mm512_mask_add_epi8(digits, _mm512_cmpge_epu8_mask(shifted, _mm512_set1_epi8(86)),
                                digits, one);
  return _mm512_mask_add_epi8(digits, _mm512_cmpge_epu8_mask(shifted, _mm512_set1_epi8(-85)),
                              digits, one);
}

// 32 bytes of five digits each, 16 of five, 4 of four: digit n of a run of bytes comes before digit
// n + 1 of any of them.
template <>
struct Group<DType::TQ1_0> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks&, const std::uint8_t* record, int g, __m512 d,
                                 Sink& sink) {
    sink.template put_steps<0>(d);
    eight([&](auto s) __attribute__((always_inline)) {
      const bool last = g == 7 && s >= 4;
      const int unit = g < 5 ? s() : last ? 12 : 8 + s % 4;
      const int digit = g < 5 ? g : last ? s - 4 : 2 * (g - 5) + s / 4;
      sink.template put<s>(ternary_digits(load(record + unit * kVectorBytes), digit));
    });
  }
};

// Numbers of the low nibbles of a vector, or of the high ones.
LLORCH_INLINE __m512i fp4_numbers(const CodeBooks& books, const std::uint8_t* pairs, bool high) {
  const __m512i nibbles = high ? _mm512_srli_epi16(load(pairs), 4) : load(pairs);
  return _mm512_shuffle_epi8(load(&books.fp4_numbers),
                             _mm512_and_si512(nibbles, _mm512_set1_epi8(15)));
}

template <>
struct Group<DType::MXFP4> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int, __m512,
                                 Sink& sink) {
    const __m512i e = load_bytes(record);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    sink.template put_steps<0>(_mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, is_small, _mm512_set1_epi32(0x00200000), e)));
    eight([&](auto s) __attribute__((always_inline)) {
      sink.template put<s>(fp4_numbers(books, record + kTileRows + s % 4 * kVectorBytes, s >= 4));
    });
  }
};

// E4M3 numbers without a sign, halved: as halves they are 2^-7 of that. 0x7F is none.
LLORCH_INLINE __m512 nvfp4_steps(const std::uint8_t* p) {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i seven = _mm256_set1_epi16(0x7F);
  const __m256i number =
      _mm256_andnot_si256(_mm256_cmpeq_epi16(bytes, seven), _mm256_and_si256(bytes, seven));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(number, 7)), _mm512_set1_ps(128.0F));
}

template <>
struct Group<DType::NVFP4> {
  template <class Sink>
  static LLORCH_INLINE void open(const CodeBooks& books, const std::uint8_t* record, int g, __m512,
                                 Sink& sink) {
    const std::uint8_t* scales = record + kTileRows * (2 * g);
    sink.template put_steps<0>(nvfp4_steps(scales));
    sink.template put_steps<1>(nvfp4_steps(scales + kTileRows));
    const std::uint8_t* pairs = record + kTileRows * (4 + 16 * g);
    eight([&](auto s) __attribute__((always_inline)) {
      sink.template put<s>(
          fp4_numbers(books, pairs + (s / 4 * 2 + s % 2) * kVectorBytes, s % 4 >= 2));
    });
  }
};

// The half that scales a record, where there is one: IQ1_M has four bits of it in each of four
// words.
template <DType T>
LLORCH_INLINE __m512 load_d(const std::uint8_t* record) {
  if constexpr (T == DType::MXFP4 || T == DType::NVFP4) return _mm512_setzero_ps();
  if constexpr (T == DType::TQ1_0) return load_halves(record + kTileRows * 52);
  if constexpr (T == DType::TQ2_0) return load_halves(record + kTileRows * 64);
  if constexpr (T != DType::IQ1_M) return load_halves(record);
  __m256i bits = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i word =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(record + kTileRows * (48 + 2 * i)));
    bits = _mm256_or_si256(bits, _mm256_slli_epi16(_mm256_srli_epi16(word, 12), 4 * i));
  }
  return _mm512_cvtph_ps(bits);
}

template <DType T, class Sink>
LLORCH_INLINE void each_group(const std::uint8_t* tile, std::int64_t blocks, Sink& sink) {
  constexpr CodeBlock kBlock = code_block(T);
  constexpr auto kGroups = static_cast<int>(kBlock.elems / kInputBlock);
  const CodeBooks& books = code_books();
  for (std::int64_t b = 0; b < blocks; b += kGroups, tile += kBlock.record_bytes()) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    const __m512 d = load_d<T>(tile);
    for (int g = 0; g < kGroups; ++g) {
      sink.begin();
      Group<T>::open(books, tile, g, d, sink);
      sink.end();
    }
  }
}

template <DType T>
void open(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  Records<quant_layout(T).halves> records = {out};
  each_group<T>(tile, blocks, records);
}

template <DType T>
void multiply_row(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks, float* out) {
  OneRow<quant_layout(T).halves> row = {x, _mm512_setzero_ps(), {}, {}};
  each_group<T>(tile, blocks, row);
  _mm512_storeu_ps(out, row.sums);
}

constexpr CodeKernels make_kernels() {
  CodeKernels kernels = {};
  with_each_code_type([&](auto type) {
    kernels.open[static_cast<std::size_t>(type())] = open<type()>;
    kernels.multiply_row[static_cast<std::size_t>(type())] = multiply_row<type()>;
  });
  return kernels;
}

}  // namespace

constinit const CodeKernels kCodesAvx512 = make_kernels();

}  // namespace llorch::compute

#else

namespace llorch::compute {
constinit const CodeKernels kCodesAvx512 = {};
}  // namespace llorch::compute

#endif
