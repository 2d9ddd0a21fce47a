#include "compute/cpu/packed.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/cpu/packed_codes.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// One block of the file, taken apart. Numbers are as the tile keeps them, not yet biased.
struct Block {
  std::uint16_t step = 0;
  std::uint16_t min = 0;
  std::int8_t scales[16] = {};  // of 32 k each, or of 16
  std::int8_t mins[16] = {};
  alignas(64) std::uint8_t numbers[256] = {};
};

std::uint32_t load_word(const std::uint8_t* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
void store_word(std::uint32_t word, std::uint8_t* bytes) {
  std::memcpy(bytes, &word, sizeof(word));
}
std::uint16_t load_half_bits(const std::uint8_t* bytes) {
  return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}
void store_half_bits(std::uint16_t half, std::uint8_t* bytes) {
  std::memcpy(bytes, &half, sizeof(half));
}

std::uint8_t as_byte(int value) {
  return static_cast<std::uint8_t>(value);
}

// Reads a block, or writes it back: one description of each format for both directions. Field
// accessors take (file byte, shift, mask) places.
enum class Way : std::uint8_t { Read, Write };

// Bits `width` at `shift` of a byte of the file, and bits at `at` of one of ours.
template <Way way, class Byte>
void bits(Byte& file, int shift, int width, auto& ours, int at) {
  const int mask = (1 << width) - 1;
  if constexpr (way == Way::Read) {
    ours =
        static_cast<std::remove_reference_t<decltype(ours)>>(ours | ((file >> shift & mask) << at));
  } else {
    file = as_byte(file | ((static_cast<std::uint8_t>(ours) >> at & mask) << shift));
  }
}

template <Way way, class Byte>
void half_at(Byte* file, std::uint16_t& ours) {
  if constexpr (way == Way::Read) {
    ours = load_half_bits(file);
  } else {
    store_half_bits(ours, file);
  }
}

// Low nibbles of 16 bytes, then their high ones; 32 numbers.
template <Way way, class Byte>
void nibbles16(Byte* file, std::uint8_t* numbers) {
  for (int i = 0; i < 16; ++i) {
    bits<way>(file[i], 0, 4, numbers[i], 0);
    bits<way>(file[i], 4, 4, numbers[i + 16], 0);
  }
}

template <Way way, class Byte>
void fifth_bits32(Byte* file, std::uint8_t* numbers) {
  for (int i = 0; i < 32; ++i) bits<way>(file[i / 8], i % 8, 1, numbers[i], 4);
}

// Two bits each: number i is in byte i % 32 of its half, at 2 · (i % 128 / 32).
template <Way way, class Byte>
void pairs256(Byte* file, std::uint8_t* numbers, int at) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i)
        bits<way>(file[half * 32 + i], quarter * 2, 2, numbers[half * 128 + quarter * 32 + i], at);
    }
  }
}

// The 12 bytes of Q4_K and Q5_K: six bits each, of groups 4 to 7 in two parts.
template <Way way, class Byte>
void scales_and_mins(Byte* file, Block& block) {
  for (int group = 0; group < 4; ++group) {
    bits<way>(file[group], 0, 6, block.scales[group], 0);
    bits<way>(file[group + 4], 0, 6, block.mins[group], 0);
    bits<way>(file[group + 8], 0, 4, block.scales[group + 4], 0);
    bits<way>(file[group], 6, 2, block.scales[group + 4], 4);
    bits<way>(file[group + 8], 4, 4, block.mins[group + 4], 0);
    bits<way>(file[group + 4], 6, 2, block.mins[group + 4], 4);
  }
}

template <Way way, class Byte>
void nibbles_by_groups(Byte* file, std::uint8_t* numbers) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      bits<way>(file[pair * 32 + i], 0, 4, numbers[pair * 64 + i], 0);
      bits<way>(file[pair * 32 + i], 4, 4, numbers[pair * 64 + 32 + i], 0);
    }
  }
}

template <Way way, class Byte>
void visit_q6_k(Byte* file, Block& block) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        bits<way>(file[half * 64 + quarter % 2 * 32 + i], quarter / 2 * 4, 4,
                  block.numbers[half * 128 + quarter * 32 + i], 0);
      }
    }
  }
  pairs256<way>(file + 128, block.numbers, 4);
  for (int i = 0; i < 16; ++i) bits<way>(file[192 + i], 0, 8, block.scales[i], 0);
  half_at<way>(file + 208, block.step);
}

// Scales are biased by 32 in the file and not in the tile.
void unbias(Block& block, int count) {
  for (int i = 0; i < count; ++i) block.scales[i] = static_cast<std::int8_t>(block.scales[i] - 32);
}
void bias(Block& block, int count) {
  for (int i = 0; i < count; ++i) block.scales[i] = static_cast<std::int8_t>(block.scales[i] + 32);
}

template <Way way, class Byte>
void visit_q3_k(Byte* file, Block& block) {
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) bits<way>(file[i], group, 1, block.numbers[group * 32 + i], 2);
  }
  pairs256<way>(file + 32, block.numbers, 0);
  if constexpr (way == Way::Write) bias(block, 16);
  for (int group = 0; group < 16; ++group) {
    bits<way>(file[96 + group % 8], group / 8 * 4, 4, block.scales[group], 0);
    bits<way>(file[104 + group % 4], group / 4 * 2, 2, block.scales[group], 4);
  }
  if constexpr (way == Way::Read) unbias(block, 16);
  half_at<way>(file + 108, block.step);
}

template <Way way, class Byte>
void visit_q2_k(Byte* file, Block& block) {
  for (int i = 0; i < 16; ++i) {
    bits<way>(file[i], 0, 4, block.scales[i], 0);
    bits<way>(file[i], 4, 4, block.mins[i], 0);
  }
  pairs256<way>(file + 16, block.numbers, 0);
  half_at<way>(file + 80, block.step);
  half_at<way>(file + 82, block.min);
}

template <Way way, class Byte>
void visit_iq4_xs(Byte* file, Block& block) {
  if constexpr (way == Way::Write) bias(block, 8);
  half_at<way>(file, block.step);
  for (int group = 0; group < 8; ++group) {
    bits<way>(file[4 + group / 2], group % 2 * 4, 4, block.scales[group], 0);
    bits<way>(file[2 + group / 4], group % 4 * 2, 2, block.scales[group], 4);
    nibbles16<way>(file + 8 + group * 16, block.numbers + group * 32);
  }
  if constexpr (way == Way::Read) unbias(block, 8);
}

// Blocks are zeroed before, on either side.
template <Way way, DType T, class Byte>
void visit_block(Byte* file, Block& block) {
  using enum DType;
  if constexpr (T == Q6_K) return visit_q6_k<way>(file, block);
  if constexpr (T == Q3_K) return visit_q3_k<way>(file, block);
  if constexpr (T == Q2_K) return visit_q2_k<way>(file, block);
  if constexpr (T == IQ4_XS) return visit_iq4_xs<way>(file, block);
  constexpr QuantLayout kLayout = quant_layout(T);
  half_at<way>(file, block.step);
  file += 2;
  if constexpr (kLayout.has_min) {
    half_at<way>(file, block.min);
    file += 2;
  }
  if constexpr (T == Q4_K || T == Q5_K) {
    scales_and_mins<way>(file, block);
    file += 12;
    if constexpr (T == Q5_K) {
      for (int group = 0; group < 8; ++group) {
        for (int i = 0; i < 32; ++i) bits<way>(file[i], group, 1, block.numbers[group * 32 + i], 4);
      }
      file += 32;
    }
    nibbles_by_groups<way>(file, block.numbers);
  } else if constexpr (T == Q8_0) {
    for (int i = 0; i < 32; ++i) bits<way>(file[i], 0, 8, block.numbers[i], 0);
  } else if constexpr (kLayout.elems == 32) {
    if constexpr (kLayout.high_bits == 1) {
      fifth_bits32<way>(file, block.numbers);
      file += 4;
    }
    nibbles16<way>(file, block.numbers);
  }
}

// Where step s of `width` bits is in its vectors: which one, and at which bit.
struct Slot {
  int vector, bit;
};
constexpr Slot slot_of(int width, int step) {
  if (width == 8) return {step, 0};
  if (width == 4) return {step % 4, step / 4 * 4};
  if (width == 2) return {step / 4, step % 4 * 2};
  return {0, step};
}

constexpr std::uint32_t kInEachByte = 0x01010101;

// The numbers of 32 k of one row, from or to their vectors.
template <DType T, Way way, class Byte>
void visit_numbers(Byte* vectors, std::int64_t lane, std::uint8_t* numbers) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr std::uint32_t kFlip = T == DType::Q8_0 ? 0x80808080 : 0;
  const auto part = [&](int width, int at, std::int64_t offset) {
    const std::uint32_t mask = kInEachByte * ((1U << width) - 1);
    for (int step = 0; step < 8; ++step) {
      const Slot slot = slot_of(width, step);
      Byte* place = vectors + offset + slot.vector * kVectorBytes + lane * 4;
      if constexpr (way == Way::Read) {
        const std::uint32_t word = (load_word(place) ^ kFlip) >> slot.bit & mask;
        store_word(load_word(numbers + step * 4) | word << at, numbers + step * 4);
      } else {
        const std::uint32_t word = ((load_word(numbers + step * 4) ^ kFlip) >> at & mask);
        store_word(load_word(place) | word << slot.bit, place);
      }
    }
  };
  if constexpr (kLayout.high_bits > 0) part(kLayout.high_bits, kLayout.low_bits, 0);
  part(kLayout.low_bits, 0, kLayout.high_bits * kVectorBytes);
}

// One row's part of a record, from or to a block. A record is zeroed before its rows are written.
template <DType T, Way way, class Byte>
void visit_record(Byte* record, std::int64_t lane, Block& block) {
  constexpr QuantLayout kLayout = quant_layout(T);
  half_at<way>(record + lane * 2, block.step);
  if constexpr (kLayout.has_min) half_at<way>(record + kTileRows * 2 + lane * 2, block.min);
  Byte* group = record + kLayout.head_bytes();
  constexpr int kScales = kLayout.elems == 32 ? 0 : kLayout.halves ? 2 : 1;
  for (int g = 0; g < kLayout.elems / 32; ++g) {
    for (int s = 0; s < kScales; ++s) {
      bits<way>(group[s * kTileRows + lane], 0, 8, block.scales[g * kScales + s], 0);
      if constexpr (kLayout.has_min)
        bits<way>(group[(kScales + s) * kTileRows + lane], 0, 8, block.mins[g * kScales + s], 0);
    }
    visit_numbers<T, way>(group + kLayout.scale_bytes(), lane,
                          block.numbers + std::size_t{32} * static_cast<std::size_t>(g));
    group += kLayout.scale_bytes() + kLayout.number_bytes();
  }
}

template <DType T>
void pack_quants(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                 std::uint8_t* out) {
  constexpr QuantLayout kLayout = quant_layout(T);
  const std::int64_t file_bytes = tensor::info(T).block_bytes;
  const std::int64_t blocks = source.cols / kLayout.elems;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
  std::memset(out, 0, static_cast<std::size_t>(blocks * kLayout.record_bytes()));
  // A few records at a time: what all rows write to stays in the nearest cache.
  constexpr std::int64_t kAtOnce = std::max<std::int64_t>(1, 8192 / kLayout.record_bytes());
  for (std::int64_t begin = 0; begin < blocks; begin += kAtOnce) {
    const std::int64_t end = std::min(begin + kAtOnce, blocks);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::uint8_t* row =
          bytes + (first + lane) * source.row_stride / kLayout.elems * file_bytes;
      for (std::int64_t b = begin; b < end; ++b) {
        Block block;
        visit_block<Way::Read, T>(row + b * file_bytes, block);
        visit_record<T, Way::Write>(out + b * kLayout.record_bytes(), lane, block);
      }
    }
  }
}

template <DType T>
using Number = std::conditional_t<T == DType::F32, std::uint32_t, std::uint16_t>;

template <DType T>
void pack_numbers(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                  std::uint8_t* out) {
  const std::byte* bytes = source.bytes.data();
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Number<T>));
  constexpr std::int64_t kAtOnce = 64;
  // An odd last column of pairs has none beside it.
  const std::int64_t cols = T == DType::BF16 ? (source.cols + 1) / 2 * 2 : source.cols;
  for (std::int64_t begin = 0; begin < cols; begin += kAtOnce) {
    const std::int64_t end = std::min(begin + kAtOnce, cols);
    for (std::int64_t lane = 0; lane < kTileRows; ++lane) {
      const std::byte* row = bytes + (first + lane) * source.row_stride * kBytes;
      for (std::int64_t k = begin; k < end; ++k) {
        Number<T> number = 0;
        if (lane < lanes && k < source.cols)
          std::memcpy(&number, row + k * source.col_stride * kBytes, sizeof(number));
        std::memcpy(out + number_offset(T, k, lane), &number, sizeof(number));
      }
    }
  }
}

template <DType T>
void unpack_numbers(const std::uint8_t* tile, std::int64_t lane, std::int64_t k,
                    std::uint8_t* out) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Number<T>));
  for (std::int64_t i = 0; i < k; ++i)
    std::memcpy(out + i * kBytes, tile + number_offset(T, i, lane), sizeof(Number<T>));
}

template <class F>
void with_plain_type(DType dtype, const F& visit) {
  with_types<DType::F32, DType::F16, DType::BF16>([&](auto type) {
    if (dtype == type()) visit(type);
  });
}

}  // namespace

std::int64_t tile_bytes(DType dtype, std::int64_t k) {
  const QuantLayout layout = quant_layout(dtype);
  if (layout.opened) return k / code_block(dtype).elems * code_block(dtype).record_bytes();
  if (layout.elems == 0) return number_offset(dtype, dtype == DType::BF16 ? (k + 1) / 2 * 2 : k, 0);
  return k / layout.elems * layout.record_bytes();
}

std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t k) {
  return (rows + kTileRows - 1) / kTileRows * tile_bytes(dtype, k);
}

void pack_tile(const WeightSource& source, std::int64_t tile, std::uint8_t* out) {
  const std::int64_t first = tile * kTileRows;
  const std::int64_t lanes = std::min(kTileRows, source.rows - first);
  with_plain_type(source.dtype,
                  [&](auto type) { pack_numbers<type()>(source, first, lanes, out); });
  if (has_codes(source.dtype)) return pack_codes(source, first, lanes, out);
  with_quant_type(source.dtype, [&](auto type) { pack_quants<type()>(source, first, lanes, out); });
}

void unpack_row(DType dtype, const std::uint8_t* tile, std::int64_t lane, std::int64_t k,
                std::uint8_t* out) {
  with_plain_type(dtype, [&](auto type) { unpack_numbers<type()>(tile, lane, k, out); });
  if (has_codes(dtype)) return unpack_codes(dtype, tile, lane, k, out);
  with_quant_type(dtype, [&](auto type) {
    constexpr QuantLayout kLayout = quant_layout(type());
    const std::int64_t file_bytes = tensor::info(dtype).block_bytes;
    for (std::int64_t b = 0; b < k / kLayout.elems; ++b, out += file_bytes) {
      Block block;
      visit_record<type(), Way::Read>(tile + b * kLayout.record_bytes(), lane, block);
      std::memset(out, 0, static_cast<std::size_t>(file_bytes));
      visit_block<Way::Write, type()>(out, block);
    }
  });
}

void quantize_block(const float* x, InputBlock& block) {
  float scale = 0;
  quantize_input({x, static_cast<std::size_t>(kInputBlock)}, block.quants, &scale);
  std::int32_t halves[2] = {};
  for (std::size_t i = 0; i < 32; ++i) halves[i / 16] += block.quants[i];
  finish_block(scale, halves[0], halves[1], block);
}

}  // namespace llorch::compute
