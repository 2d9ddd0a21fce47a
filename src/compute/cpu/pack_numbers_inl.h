// The numbers of blocks on their way into tiles, of four rows at once: words of rows are turned
// into words of lanes, and fields of bytes that follow each other in the file into fields of the
// vectors that a tile keeps. For packed.cc, whose unpack_row() is what it is held to.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/cpu/packed.h"
#include "tensor/dtype.h"

namespace llorch::compute {

inline constexpr std::int64_t kRowsAtOnce = 4;

// One word of each of four rows, or four words of one.
using Words = std::uint32_t __attribute__((vector_size(16)));
// Eight halves likewise.
using Halves = std::uint16_t __attribute__((vector_size(16)));

// Four rows at the same place.
struct RowBytes {
  const std::uint8_t* rows[kRowsAtOnce];

  RowBytes at(std::int64_t offset) const {
    return {{rows[0] + offset, rows[1] + offset, rows[2] + offset, rows[3] + offset}};
  }
};

template <class Vector>
[[gnu::always_inline]] inline Vector load_vector(const std::uint8_t* bytes) {
  Vector vector;
  std::memcpy(&vector, bytes, sizeof(vector));
  return vector;
}

// `count` words of each row, a multiple of four: out[i] is word i of all of them.
template <int count>
[[gnu::always_inline]] inline void load_words(const RowBytes& from, Words* out) {
  for (int word = 0; word < count; word += 4, out += 4) {
    const Words a = load_vector<Words>(from.rows[0] + word * 4);
    const Words b = load_vector<Words>(from.rows[1] + word * 4);
    const Words c = load_vector<Words>(from.rows[2] + word * 4);
    const Words d = load_vector<Words>(from.rows[3] + word * 4);
    const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Words ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Words cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    out[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    out[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    out[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    out[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  }
}

// Into vector `index` of a group's, at the place of these rows.
[[gnu::always_inline]] inline void put_words(Words words, std::uint8_t* vectors, int index) {
  std::memcpy(vectors + index * kVectorBytes, &words, sizeof(words));
}

// `width` bits set, as many not, and so on.
constexpr std::uint32_t every_other(int width) {
  std::uint32_t mask = 0;
  for (int bit = 0; bit < 32; ++bit) mask |= bit / width % 2 == 0 ? 1U << bit : 0;
  return mask;
}

template <int width, int apart>
[[gnu::always_inline]] inline void transpose_fields_apart(Words* vectors) {
  constexpr int kFields = 8 / width;
  constexpr std::uint32_t kMask = every_other(apart * width);
  for (int v = 0; v < kFields; ++v) {
    if ((v & apart) != 0) continue;
    const Words changed = ((vectors[v] >> (apart * width)) ^ vectors[v + apart]) & kMask;
    vectors[v + apart] ^= changed;
    vectors[v] ^= changed << (apart * width);
  }
}

// Bytes of 8 / width fields each, in as many vectors: field f of vector v goes to field v of
// vector f.
template <int width>
[[gnu::always_inline]] inline void transpose_fields(Words* vectors) {
  if constexpr (width == 1) transpose_fields_apart<width, 4>(vectors);
  if constexpr (width <= 2) transpose_fields_apart<width, 2>(vectors);
  transpose_fields_apart<width, 1>(vectors);
}

// The bits whose number has bit b and not bit a.
constexpr std::uint32_t with_bit_of_place(int b, int a) {
  std::uint32_t mask = 0;
  for (int bit = 0; bit < 32; ++bit)
    mask |= (bit >> a & 1) == 0 && (bit >> b & 1) == 1 ? 1U << bit : 0;
  return mask;
}

// Exchanges bits a and b of every bit's number.
template <int a, int b>
[[gnu::always_inline]] inline Words swap_places(Words word) {
  static_assert(a > b);
  constexpr std::uint32_t kMask = with_bit_of_place(b, a);
  constexpr int kApart = (1 << a) - (1 << b);
  const Words changed = ((word >> kApart) ^ word) & kMask;
  return word ^ changed ^ (changed << kApart);
}

// Bit 4s + j, for k = 4s + j, to bit s of byte j: the fifth bits of 32 numbers.
[[gnu::always_inline]] inline Words spread_bits(Words word) {
  return swap_places<1, 0>(swap_places<2, 1>(swap_places<3, 0>(swap_places<4, 1>(word))));
}

// A type's groups of 32 k: where the vectors of group g begin.
template <tensor::DType T>
struct GroupVectors {
  std::uint8_t* first;

  std::uint8_t* low(int group) const { return high(group) + kLayout.high_bits * kVectorBytes; }
  std::uint8_t* high(int group) const {
    return first + group * (kLayout.scale_bytes() + kLayout.number_bytes());
  }
  static constexpr QuantLayout kLayout = quant_layout(T);
};

// A word of each row, four scales: byte j of all of them to place(j), side by side.
template <class Place>
[[gnu::always_inline]] inline void put_scales(Words scales, const Place& place) {
  using Bytes = std::uint8_t __attribute__((vector_size(16)));
  auto bytes = reinterpret_cast<Bytes>(scales);
  for (int i = 0; i < 2; ++i) {
    bytes =
        __builtin_shufflevector(bytes, bytes, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  const auto turned = reinterpret_cast<Words>(bytes);
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t word = turned[j];
    std::memcpy(place(j), &word, sizeof(word));
  }
}

// The heads of four rows' blocks of Q4_K and Q5_K, to rows `lane` and so on of their record: step
// and minimum, then six bits each of eight scales and eight minimums, of groups 4 to 7 in two
// parts.
template <tensor::DType T>
[[gnu::always_inline]] inline void put_head_of_k(const RowBytes& block, std::int64_t lane,
                                                 std::uint8_t* record) {
  constexpr QuantLayout kLayout = quant_layout(T);
  Words words[4];
  load_words<4>(block, words);
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const std::uint32_t step_and_min = words[0][i];
    const std::uint16_t halves[] = {static_cast<std::uint16_t>(step_and_min),
                                    static_cast<std::uint16_t>(step_and_min >> 16)};
    std::memcpy(record + (lane + i) * 2, &halves[0], 2);
    std::memcpy(record + (kTileRows + lane + i) * 2, &halves[1], 2);
  }
  const auto put = [&](Words values, int first, std::int64_t offset) {
    put_scales(values, [&](int j) {
      return record + kLayout.head_bytes() + offset + lane +
             (first + j) * (kLayout.scale_bytes() + kLayout.number_bytes());
    });
  };
  put(words[1] & 0x3F3F3F3F, 0, 0);
  put((words[3] & 0x0F0F0F0F) | ((words[1] >> 2) & 0x30303030), 4, 0);
  put(words[2] & 0x3F3F3F3F, 0, kTileRows);
  put(((words[3] >> 4) & 0x0F0F0F0F) | ((words[2] >> 2) & 0x30303030), 4, kTileRows);
}

// Likewise of Q6_K: a scale for each 16 k, and a step.
template <tensor::DType T>
[[gnu::always_inline]] inline void put_head_of_q6_k(const RowBytes& block, std::int64_t lane,
                                                    std::uint8_t* record) {
  constexpr QuantLayout kLayout = quant_layout(T);
  for (int i = 0; i < kRowsAtOnce; ++i)
    std::memcpy(record + (lane + i) * 2, block.rows[i] + 208, 2);
  Words words[4];
  load_words<4>(block.at(192), words);
  for (int word = 0; word < 4; ++word) {
    put_scales(words[word], [&](int j) {
      return record + kLayout.head_bytes() + j % 2 * kTileRows + lane +
             (word * 2 + j / 2) * (kLayout.scale_bytes() + kLayout.number_bytes());
    });
  }
}

// 16 bytes: low nibbles of k, then their high ones. That is how vectors have them.
[[gnu::always_inline]] inline void put_nibbles16(const RowBytes& file, std::uint8_t* vectors) {
  Words words[4];
  load_words<4>(file, words);
  for (int s = 0; s < 4; ++s) put_words(words[s], vectors, s);
}

// Eight words of 32 k, low nibbles, and of 32 other k, high ones.
[[gnu::always_inline]] inline void put_nibbles32(const Words* words, std::uint8_t* low,
                                                 std::uint8_t* high) {
  for (int s = 0; s < 4; ++s) {
    Words both[2] = {words[s], words[s + 4]};
    transpose_fields<4>(both);
    put_words(both[0], low, s);
    put_words(both[1], high, s);
  }
}

// 32 bytes with a bit of each of eight groups: their high bits.
template <tensor::DType T>
[[gnu::always_inline]] inline void put_bits256(const RowBytes& file, GroupVectors<T> groups) {
  Words words[8];
  load_words<8>(file, words);
  transpose_fields<1>(words);
  for (int group = 0; group < 8; ++group) put_words(words[group], groups.high(group), 0);
}

// Two halves of 32 bytes, each with two bits of each of four groups.
template <class Place>
[[gnu::always_inline]] inline void put_pairs256(const RowBytes& file, const Place& place) {
  for (int half = 0; half < 2; ++half) {
    Words words[8];
    load_words<8>(file.at(half * 32), words);
    for (int vector = 0; vector < 2; ++vector) {
      transpose_fields<2>(words + vector * 4);
      for (int quarter = 0; quarter < 4; ++quarter)
        put_words(words[vector * 4 + quarter], place(half * 4 + quarter), vector);
    }
  }
}

template <tensor::DType T>
[[gnu::always_inline]] inline void put_q6_k(const RowBytes& file, GroupVectors<T> groups) {
  for (int part = 0; part < 4; ++part) {
    Words words[8];
    load_words<8>(file.at(part * 32), words);
    const int first = part / 2 * 4 + part % 2;
    put_nibbles32(words, groups.low(first), groups.low(first + 2));
  }
  put_pairs256(file.at(128), [&](int group) { return groups.high(group); });
}

// All numbers of a block of four rows, to the vectors of its record; `at` is the first row's place
// in the first vector.
template <tensor::DType T>
[[gnu::always_inline]] inline void put_numbers(const RowBytes& block, std::uint8_t* at) {
  using enum tensor::DType;
  const GroupVectors<T> groups = {at};
  const auto low = [&](int group) { return groups.low(group); };
  if constexpr (T == Q8_0) {
    Words words[8];
    load_words<8>(block.at(2), words);
    for (int s = 0; s < 8; ++s) put_words(words[s] ^ 0x80808080, at, s);
  } else if constexpr (T == Q5_0 || T == Q5_1) {
    constexpr std::int64_t kHead = T == Q5_0 ? 2 : 4;
    const auto bits = [&](int row) { return load_vector<std::uint32_t>(block.rows[row] + kHead); };
    put_words(spread_bits(Words{bits(0), bits(1), bits(2), bits(3)}), at, 0);
    put_nibbles16(block.at(kHead + 4), low(0));
  } else if constexpr (T == Q4_0 || T == IQ4_NL || T == Q4_1) {
    put_nibbles16(block.at(T == Q4_1 ? 4 : 2), low(0));
  } else if constexpr (T == IQ4_XS) {
    for (int group = 0; group < 8; ++group) put_nibbles16(block.at(8 + group * 16), low(group));
  } else if constexpr (T == Q2_K) {
    put_pairs256(block.at(16), low);
  } else if constexpr (T == Q3_K) {
    put_bits256(block, groups);
    put_pairs256(block.at(32), low);
  } else if constexpr (T == Q6_K) {
    put_q6_k(block, groups);
  } else {
    static_assert(T == Q4_K || T == Q5_K);
    if constexpr (T == Q5_K) put_bits256(block.at(16), groups);
    for (int pair = 0; pair < 4; ++pair) {
      Words words[8];
      load_words<8>(block.at((T == Q5_K ? 48 : 16) + pair * 32), words);
      put_nibbles32(words, low(pair * 2), low(pair * 2 + 1));
    }
  }
}

// Eight halves of each of eight rows, to eight places that are `stride` bytes apart.
[[gnu::always_inline]] inline void put_halves(const std::uint8_t* const* rows, std::int64_t offset,
                                              std::uint8_t* out, std::int64_t stride) {
  Halves in[8];
  Halves pairs[8];
  Halves fours[8];
  for (int r = 0; r < 8; ++r) in[r] = load_vector<Halves>(rows[r] + offset);
  for (int i = 0; i < 4; ++i) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[i + 4] = __builtin_shufflevector(in[i], in[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const Halves a = pairs[i + j];
      const Halves b = pairs[i + j + 2];
      fours[i + j] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      fours[i + j + 2] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
  }
  for (int i = 0; i < 8; i += 2) {
    const Halves a = fours[i];
    const Halves b = fours[i + 1];
    const Halves low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    const Halves high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(out + i * stride, &low, sizeof(low));
    std::memcpy(out + (i + 1) * stride, &high, sizeof(high));
  }
}

}  // namespace llorch::compute
