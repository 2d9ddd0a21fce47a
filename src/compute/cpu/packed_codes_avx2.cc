// Tiles of codes opened with AVX2: entries of books come one by one, eight or four bytes each, and
// are put beside each other, half a tile at a time. Compiled for that set; it holds nothing that
// another file could be given by the linker.
#include "compute/cpu/packed_codes.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

using tensor::DType;

constexpr int kRows = 8;         // of half a tile
constexpr int kHalfVector = 32;  // rows 0 to 7, or 8 to 15

LLORCH_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
LLORCH_INLINE void store256(std::uint8_t* out, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), v);
}
LLORCH_INLINE __m256i all_bytes(int value) {
  return _mm256_set1_epi8(static_cast<char>(value));
}

template <class Word>
LLORCH_INLINE Word load_word(const std::uint8_t* p) {
  Word word;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}
// Of each row a byte, or a half word, as 32 bits.
LLORCH_INLINE __m256i load_bytes(const std::uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
LLORCH_INLINE __m256i load_words(const std::uint8_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LLORCH_INLINE __m256 load_halves(const std::uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LLORCH_INLINE void put(std::uint8_t* out, __m256 steps) {
  _mm256_storeu_ps(reinterpret_cast<float*>(out), steps);
}

// (0.5 + scale) · d · unit, and (2 · scale + 1) · d · unit; both exact.
LLORCH_INLINE __m256 half_steps(__m256 d, __m256i scale, float unit) {
  return _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(scale), _mm256_set1_ps(0.5F)),
                       _mm256_mul_ps(d, _mm256_set1_ps(unit)));
}
LLORCH_INLINE __m256 odd_steps(__m256 d, __m256i scale, float unit) {
  return half_steps(d, scale, 2 * unit);
}
LLORCH_INLINE __m256i low_bits(__m256i v, int count) {
  return _mm256_and_si256(v, _mm256_set1_epi32((1 << count) - 1));
}
LLORCH_INLINE void put_nibble_steps(__m256 d, const std::uint8_t* scales, std::uint8_t* out) {
  const __m256i both = load_bytes(scales);
  put(out, half_steps(d, low_bits(both, 4), 0.25F));
  put(out + kVectorBytes, half_steps(d, _mm256_srli_epi32(both, 4), 0.25F));
}

// Byte j of the eighth sign of each seven bits, four to a row, put beside them.
LLORCH_INLINE __m256i eight_signs(__m256i rest) {
  __m256i sevens = low_bits(rest, 7);
#pragma GCC unroll 3
  for (int j = 1; j < 4; ++j) {
    sevens = _mm256_or_si256(
        sevens, _mm256_and_si256(_mm256_slli_epi32(rest, j), _mm256_set1_epi32(0x7F << 8 * j)));
  }
  // Where the number of ones of a nibble is odd, the top bit.
  const __m256i odd = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const __m256i nibbles =
      _mm256_and_si256(_mm256_xor_si256(sevens, _mm256_srli_epi16(sevens, 4)), all_bytes(15));
  return _mm256_or_si256(sevens, _mm256_shuffle_epi8(odd, nibbles));
}

// Byte j of each row's four, four times.
template <int j>
LLORCH_INLINE __m256i repeat(__m256i v) {
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                    j, j, j, j, 4 + j, 4 + j, 4 + j, 4 + j, 8 + j, 8 + j, 8 + j,
                                    8 + j, 12 + j, 12 + j, 12 + j, 12 + j)));
}

// Numbers plus 128, some of them negated: by the bits 4 · `upper`… of their row's byte.
template <int upper>
LLORCH_INLINE __m256i negate(__m256i numbers, __m256i signs) {
  constexpr int kFour = upper == 0 ? 0x08040201 : static_cast<int>(0x80402010U);
  const __m256i bits = _mm256_set1_epi32(kFour);
  const __m256i chosen = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bits), bits);
  return _mm256_sub_epi8(_mm256_xor_si256(numbers, chosen), chosen);
}

// Values 8j..8j + 7 of eight rows, which eight(row, j) gives as bytes: the first four of each row,
// and the others.
template <class F>
LLORCH_INLINE void gather(const F& eight, int j, __m256i* first, __m256i* second) {
  const auto two = [&](int row) __attribute__((always_inline)) {
    return _mm_set_epi64x(static_cast<std::int64_t>(eight(row + 1, j)),
                          static_cast<std::int64_t>(eight(row, j)));
  };
  const __m256 even = _mm256_castsi256_ps(_mm256_set_m128i(two(4), two(0)));
  const __m256 odd = _mm256_castsi256_ps(_mm256_set_m128i(two(6), two(2)));
  *first = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0x88));
  *second = _mm256_castps_si256(_mm256_shuffle_ps(even, odd, 0xDD));
}

// 32 k of half a tile: eight(row, j) is values 8j..8j + 7 of a row.
template <class F>
LLORCH_INLINE void put_signed(__m256i signs, std::uint8_t* out, const F& eight) {
  four([&](auto j) __attribute__((always_inline)) {
    __m256i first;
    __m256i second;
    gather(eight, j(), &first, &second);
    const __m256i of_row = repeat<j()>(signs);
    store256(out + 2 * j * kVectorBytes, negate<0>(first, of_row));
    store256(out + (2 * j + 1) * kVectorBytes, negate<1>(second, of_row));
  });
}

// The same with what is added to all numbers of a row, for each j.
template <class F>
LLORCH_INLINE void put_shifted(const __m256i* shifts, std::uint8_t* out, const F& eight) {
  four([&](auto j) __attribute__((always_inline)) {
    __m256i first;
    __m256i second;
    gather(eight, j(), &first, &second);
    store256(out + 2 * j * kVectorBytes, _mm256_add_epi8(first, shifts[j]));
    store256(out + (2 * j + 1) * kVectorBytes, _mm256_add_epi8(second, shifts[j]));
  });
}

// A half of group g of a record, opened to `out`; d is the half record's. at(b, bytes) is where its
// rows' units begin that are the file's at byte b.
template <DType T>
struct Group;

template <>
struct Group<DType::IQ2_XXS> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* codes = at(2 + 8 * g, 4);
    const __m256i rest = load256(at(6 + 8 * g, 4));
    put(out, half_steps(d, _mm256_srli_epi32(rest, 28), 0.25F));
    put_signed(eight_signs(rest), out + kVectorBytes,
               [&](int row, int j) { return books.iq2_xxs.numbers[codes[4 * row + j]]; });
  }
};

template <>
struct Group<DType::IQ2_XS> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* first = at(2 + 8 * g, 4);
    const std::uint8_t* second = at(6 + 8 * g, 4);
    put_nibble_steps(d, at(66 + g, 1), out);
    // Signs are the upper seven bits of each half word.
    const __m256i low = _mm256_srli_epi16(load256(first), 9);
    const __m256i high = _mm256_srli_epi16(load256(second), 9);
    const __m256i sevens = _mm256_or_si256(
        _mm256_or_si256(low_bits(low, 7),
                        _mm256_and_si256(_mm256_srli_epi32(low, 9), _mm256_set1_epi32(0x7F << 7))),
        _mm256_or_si256(_mm256_slli_epi32(low_bits(high, 7), 14),
                        _mm256_slli_epi32(_mm256_srli_epi32(high, 16), 21)));
    put_signed(eight_signs(sevens), out + 2 * kVectorBytes, [&](int row, int j) {
      const std::uint8_t* word = (j < 2 ? first : second) + 4 * row + 2 * (j % 2);
      return books.iq2_xs.numbers[load_word<std::uint16_t>(word) & 511];
    });
  }
};

template <>
struct Group<DType::IQ2_S> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* codes = at(2 + 4 * g, 4);
    const std::uint8_t* upper = at(66 + g, 1);
    put_nibble_steps(d, at(74 + g, 1), out);
    put_signed(load256(at(34 + 4 * g, 4)), out + 2 * kVectorBytes, [&](int row, int j) {
      return books.iq2_s.numbers[codes[4 * row + j] | (upper[row] << (8 - 2 * j) & 0x300)];
    });
  }
};

template <>
struct Group<DType::IQ3_XXS> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* first = at(2 + 8 * g, 4);
    const std::uint8_t* second = at(6 + 8 * g, 4);
    const __m256i rest = load256(at(66 + 4 * g, 4));
    put(out, half_steps(d, _mm256_srli_epi32(rest, 28), 0.5F));
    put_signed(eight_signs(rest), out + kVectorBytes, [&](int row, int j) {
      const std::uint8_t* codes = (j < 2 ? first : second) + 4 * row + 2 * (j % 2);
      return books.iq3_xxs.numbers[codes[0]] | std::uint64_t{books.iq3_xxs.numbers[codes[1]]} << 32;
    });
  }
};

template <>
struct Group<DType::IQ3_S> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* first = at(2 + 8 * g, 4);
    const std::uint8_t* second = at(6 + 8 * g, 4);
    const std::uint8_t* ninth = at(66 + g, 1);
    const __m256i scales = _mm256_srli_epi32(load_bytes(at(106 + g / 2, 1)), g % 2 * 4);
    put(out, odd_steps(d, low_bits(scales, 4), 1.0F));
    put_signed(load256(at(74 + 4 * g, 4)), out + kVectorBytes, [&](int row, int j) {
      const std::uint8_t* codes = (j < 2 ? first : second) + 4 * row + 2 * (j % 2);
      const int upper = ninth[row] << 8 >> 2 * j;
      return books.iq3_s.numbers[codes[0] | (upper & 256)] |
             std::uint64_t{books.iq3_s.numbers[codes[1] | (upper >> 1 & 256)]} << 32;
    });
  }
};

// ±1 in each byte of a row, by one of its bits.
LLORCH_INLINE __m256i shift_by(__m256i v, int bit) {
  const __m256i negative = _mm256_srai_epi32(_mm256_slli_epi32(v, 31 - bit), 31);
  return _mm256_or_si256(negative, all_bytes(1));
}

template <>
struct Group<DType::IQ1_S> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* codes = at(2 + 4 * g, 4);
    const std::uint8_t* words = at(34 + 2 * g, 2);
    const __m256i rest = load_words(words);
    put(out, odd_steps(d, low_bits(_mm256_srli_epi32(rest, 12), 3), 0.125F));
    const __m256i shift = shift_by(rest, 15);
    const __m256i shifts[] = {shift, shift, shift, shift};
    put_shifted(shifts, out + kVectorBytes, [&](int row, int j) {
      const int upper = load_word<std::uint16_t>(words + 2 * row) << 8 >> 3 * j & 0x700;
      return books.iq1.numbers[codes[4 * row + j] | upper];
    });
  }
};

template <>
struct Group<DType::IQ1_M> {
  template <class At>
  static LLORCH_INLINE void open(const CodeBooks& books, const At& at, int g, __m256 d,
                                 std::uint8_t* out) {
    const std::uint8_t* codes = at(4 * g, 4);
    const std::uint8_t* words = at(32 + 2 * g, 2);
    const __m256i scales = _mm256_srli_epi32(load_words(at(48 + g / 2 * 2, 2)), g % 2 * 6);
    put(out, odd_steps(d, low_bits(scales, 3), 0.125F));
    put(out + kVectorBytes, odd_steps(d, low_bits(_mm256_srli_epi32(scales, 3), 3), 0.125F));
    const __m256i rest = load_words(words);
    const __m256i shifts[] = {shift_by(rest, 3), shift_by(rest, 7), shift_by(rest, 11),
                              shift_by(rest, 15)};
    put_shifted(shifts, out + 2 * kVectorBytes, [&](int row, int j) {
      const int upper = load_word<std::uint16_t>(words + 2 * row) << 8 >> 4 * j & 0x700;
      return books.iq1.numbers[codes[4 * row + j] | upper];
    });
  }
};

// The half that scales a record: IQ1_M has four bits of it in each of four words.
template <DType T, class At>
LLORCH_INLINE __m256 load_d(const At& at) {
  if constexpr (T != DType::IQ1_M) return load_halves(at(0, 2));
  __m128i bits = _mm_setzero_si128();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(48 + 2 * i, 2)));
    bits = _mm_or_si128(bits, _mm_slli_epi16(_mm_srli_epi16(word, 12), 4 * i));
  }
  return _mm256_cvtph_ps(bits);
}

template <DType T>
void open(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr CodeBlock kBlock = code_block(T);
  constexpr std::int64_t kGroup = quant_layout(T).record_bytes();
  const CodeBooks& books = code_books();
  for (std::int64_t b = 0; b < blocks; b += 8, tile += kBlock.record_bytes(), out += 8 * kGroup) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    for (int half = 0; half < 2; ++half) {
      const auto at = [&](int byte, int bytes) __attribute__((always_inline)) {
        return tile + kTileRows * byte + half * kRows * bytes;
      };
      const __m256 d = load_d<T>(at);
      for (int g = 0; g < 8; ++g)
        Group<T>::open(books, at, g, d, out + g * kGroup + half * kHalfVector);
    }
  }
}

// The same step for a few groups.
LLORCH_INLINE void put_steps(const std::uint8_t* halves, int groups, std::int64_t group_bytes,
                             std::uint8_t* out) {
  for (int half = 0; half < 2; ++half) {
    const __m256 steps =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 16 * half)));
    for (int g = 0; g < groups; ++g)
      _mm256_storeu_ps(reinterpret_cast<float*>(out + g * group_bytes) + 8 * half, steps);
  }
}

// Two bits at a time, four groups from one vector.
void open_tq2_0(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr CodeBlock kBlock = code_block(DType::TQ2_0);
  constexpr std::int64_t kGroup = quant_layout(DType::TQ2_0).record_bytes();
  for (std::int64_t b = 0; b < blocks; b += 8, tile += kBlock.record_bytes(), out += 8 * kGroup) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    put_steps(tile + kTileRows * 64, 8, kGroup, out);
    for (int v = 0; v < 32; ++v) {  // half a vector: 8 rows, step v / 2 % 8 of four groups
      const __m256i four = load256(tile + v * kHalfVector);
      std::uint8_t* at = out + v / 16 * 4 * kGroup + kVectorBytes + v % 16 * kHalfVector;
      const auto put = [&]<int group>() __attribute__((always_inline)) {
        const __m256i digits = _mm256_and_si256(_mm256_srli_epi16(four, 2 * group), all_bytes(3));
        store256(at + group * kGroup, _mm256_add_epi8(digits, all_bytes(127)));
      };
      put.template operator()<0>();
      put.template operator()<1>();
      put.template operator()<2>();
      put.template operator()<3>();
    }
  }
}

// The first digit of each byte, which is a fraction of 256: -1 + 128, or one or two more.
LLORCH_INLINE __m256i ternary_digits(__m256i fractions) {
  const auto at_least = [&](int least) __attribute__((always_inline)) {
    return _mm256_cmpeq_epi8(_mm256_max_epu8(fractions, all_bytes(least)), fractions);
  };
  return _mm256_sub_epi8(all_bytes(127), _mm256_add_epi8(at_least(86), at_least(171)));
}

void open_tq1_0(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr CodeBlock kBlock = code_block(DType::TQ1_0);
  constexpr std::int64_t kGroup = quant_layout(DType::TQ1_0).record_bytes();
  for (std::int64_t b = 0; b < blocks; b += 8, tile += kBlock.record_bytes(), out += 8 * kGroup) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    put_steps(tile + kTileRows * 52, 8, kGroup, out);
    // The digits of half a vector, to steps that are `stride` apart.
    const auto run = [&](int unit, int half, int digits, int step, int stride)
        __attribute__((always_inline)) {
      __m256i fractions = load256(tile + unit * kVectorBytes + half * kHalfVector);
      for (int digit = 0; digit < digits; ++digit, step += stride) {
        store256(out + step / 8 * kGroup + (1 + step % 8) * kVectorBytes + half * kHalfVector,
                 ternary_digits(fractions));
        fractions = _mm256_add_epi8(_mm256_add_epi8(fractions, fractions), fractions);
      }
    };
    for (int half = 0; half < 2; ++half) {
      for (int unit = 0; unit < 8; ++unit) run(unit, half, 5, unit, 8);
      for (int unit = 8; unit < 12; ++unit) run(unit, half, 5, 40 + unit - 8, 4);
      run(12, half, 4, 60, 1);
    }
  }
}

// Low nibbles of half a vector to one step, high ones to another.
LLORCH_INLINE void put_fp4(const CodeBooks& books, const std::uint8_t* unit, std::uint8_t* low,
                           std::uint8_t* high) {
  const __m256i levels = _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(books.fp4_numbers.numbers)));
  const __m256i pairs = load256(unit);
  const __m256i mask = all_bytes(15);
  store256(low, _mm256_shuffle_epi8(levels, _mm256_and_si256(pairs, mask)));
  store256(high, _mm256_shuffle_epi8(levels, _mm256_and_si256(_mm256_srli_epi16(pairs, 4), mask)));
}

void open_mxfp4(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr CodeBlock kBlock = code_block(DType::MXFP4);
  const CodeBooks& books = code_books();
  for (std::int64_t b = 0; b < blocks; ++b, tile += kBlock.record_bytes()) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    for (int half = 0; half < 2; ++half) {
      const __m256i e =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(tile + 8 * half)));
      const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
      const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
      const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
      store256(out + half * kHalfVector, _mm256_blendv_epi8(normal, small, is_small));
      std::uint8_t* steps = out + kVectorBytes + half * kHalfVector;
      for (int s = 0; s < 4; ++s) {
        put_fp4(books, tile + kTileRows + s * kVectorBytes + half * kHalfVector,
                steps + s * kVectorBytes, steps + (4 + s) * kVectorBytes);
      }
    }
    out += quant_layout(DType::MXFP4).record_bytes();
  }
}

// Eight E4M3 numbers without a sign, halved: as halves they are 2^-7 of that. 0x7F is none.
LLORCH_INLINE __m256 nvfp4_steps(const std::uint8_t* p) {
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i number = _mm_andnot_si128(_mm_cmpeq_epi16(bytes, _mm_set1_epi16(0x7F)),
                                          _mm_and_si128(bytes, _mm_set1_epi16(0x7F)));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16(number, 7)), _mm256_set1_ps(128.0F));
}

void open_nvfp4(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr CodeBlock kBlock = code_block(DType::NVFP4);
  const CodeBooks& books = code_books();
  for (std::int64_t b = 0; b < blocks; b += 2, tile += kBlock.record_bytes()) {
    fetch_ahead<1, kBlock.record_bytes()>(tile);
    for (int part = 0; part < 4; ++part) {  // 16 k with a scale of their own
      std::uint8_t* record = out + part / 2 * quant_layout(DType::NVFP4).record_bytes();
      for (int half = 0; half < 2; ++half) {
        _mm256_storeu_ps(reinterpret_cast<float*>(record + part % 2 * kVectorBytes) + 8 * half,
                         nvfp4_steps(tile + kTileRows * part + 8 * half));
        const std::uint8_t* units =
            tile + kTileRows * 4 + part * 2 * kVectorBytes + half * kHalfVector;
        std::uint8_t* steps = record + (2 + part % 2 * 4) * kVectorBytes + half * kHalfVector;
        for (int s = 0; s < 2; ++s) {
          put_fp4(books, units + s * kVectorBytes, steps + s * kVectorBytes,
                  steps + (2 + s) * kVectorBytes);
        }
      }
    }
    out += 2 * quant_layout(DType::NVFP4).record_bytes();
  }
}

constexpr CodeKernels make_kernels() {
  using enum DType;
  CodeKernels kernels = {};
  with_types<IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S>(
      [&](auto type) { kernels.open[static_cast<std::size_t>(type())] = open<type()>; });
  kernels.open[static_cast<std::size_t>(TQ1_0)] = open_tq1_0;
  kernels.open[static_cast<std::size_t>(TQ2_0)] = open_tq2_0;
  kernels.open[static_cast<std::size_t>(MXFP4)] = open_mxfp4;
  kernels.open[static_cast<std::size_t>(NVFP4)] = open_nvfp4;
  return kernels;
}

}  // namespace

constinit const CodeKernels kCodesAvx2 = make_kernels();

}  // namespace llorch::compute

#else

namespace llorch::compute {
constinit const CodeKernels kCodesAvx2 = {};
}  // namespace llorch::compute

#endif
