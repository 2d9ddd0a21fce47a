#include "compute/cpu/packed.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/cpu/pack_numbers_inl.h"
#include "compute/cpu/packed_codes.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// What a block of the file has beside its numbers.
struct BlockHead {
  std::uint16_t step = 0;
  std::uint16_t min = 0;
  std::int8_t scales[16] = {};  // of 32 k each, or of 16
  std::int8_t mins[16] = {};
};

std::uint32_t load_word(const std::uint8_t* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
void store_word(std::uint32_t word, std::uint8_t* bytes) {
  std::memcpy(bytes, &word, sizeof(word));
}

std::uint8_t as_byte(int value) {
  return static_cast<std::uint8_t>(value);
}

// Reads a head, or writes it back: one description of each format for both directions.
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
    std::memcpy(&ours, file, sizeof(ours));
  } else {
    std::memcpy(file, &ours, sizeof(ours));
  }
}

// The 12 bytes of Q4_K and Q5_K: six bits each, of groups 4 to 7 in two parts.
template <Way way, class Byte>
void scales_and_mins(Byte* file, BlockHead& head) {
  for (int group = 0; group < 4; ++group) {
    bits<way>(file[group], 0, 6, head.scales[group], 0);
    bits<way>(file[group + 4], 0, 6, head.mins[group], 0);
    bits<way>(file[group + 8], 0, 4, head.scales[group + 4], 0);
    bits<way>(file[group], 6, 2, head.scales[group + 4], 4);
    bits<way>(file[group + 8], 4, 4, head.mins[group + 4], 0);
    bits<way>(file[group + 4], 6, 2, head.mins[group + 4], 4);
  }
}

// Scales are biased by 32 in the file and not in the tile.
void unbias(BlockHead& head, int count) {
  for (int i = 0; i < count; ++i) head.scales[i] = static_cast<std::int8_t>(head.scales[i] - 32);
}
void bias(BlockHead& head, int count) {
  for (int i = 0; i < count; ++i) head.scales[i] = static_cast<std::int8_t>(head.scales[i] + 32);
}

// The head is zeroed before it is read, the block before it is written.
template <Way way, DType T, class Byte>
void visit_head(Byte* file, BlockHead& head) {
  using enum DType;
  if constexpr (T == Q6_K) {
    for (int i = 0; i < 16; ++i) bits<way>(file[192 + i], 0, 8, head.scales[i], 0);
    return half_at<way>(file + 208, head.step);
  }
  if constexpr (T == Q3_K) {
    if constexpr (way == Way::Write) bias(head, 16);
    for (int group = 0; group < 16; ++group) {
      bits<way>(file[96 + group % 8], group / 8 * 4, 4, head.scales[group], 0);
      bits<way>(file[104 + group % 4], group / 4 * 2, 2, head.scales[group], 4);
    }
    if constexpr (way == Way::Read) unbias(head, 16);
    return half_at<way>(file + 108, head.step);
  }
  if constexpr (T == Q2_K) {
    for (int i = 0; i < 16; ++i) {
      bits<way>(file[i], 0, 4, head.scales[i], 0);
      bits<way>(file[i], 4, 4, head.mins[i], 0);
    }
    half_at<way>(file + 80, head.step);
    return half_at<way>(file + 82, head.min);
  }
  half_at<way>(file, head.step);
  if constexpr (T == IQ4_XS) {
    if constexpr (way == Way::Write) bias(head, 8);
    for (int group = 0; group < 8; ++group) {
      bits<way>(file[4 + group / 2], group % 2 * 4, 4, head.scales[group], 0);
      bits<way>(file[2 + group / 4], group % 4 * 2, 2, head.scales[group], 4);
    }
    if constexpr (way == Way::Read) unbias(head, 8);
  }
  if constexpr (quant_layout(T).has_min) half_at<way>(file + 2, head.min);
  if constexpr (T == Q4_K || T == Q5_K) scales_and_mins<way>(file + 4, head);
}

// Low nibbles of 16 bytes, then their high ones; 32 numbers.
void give_nibbles16(const std::uint8_t* numbers, std::uint8_t* file) {
  for (int i = 0; i < 16; ++i) file[i] = as_byte((numbers[i] & 15) | (numbers[i + 16] & 15) << 4);
}

// A bit of each of 32 numbers.
void give_bits32(const std::uint8_t* numbers, int at, std::uint8_t* file) {
  for (int i = 0; i < 32; ++i) bits<Way::Write>(file[i / 8], i % 8, 1, numbers[i], at);
}

// Bit g of byte i is that of number 32 g + i.
void give_bits256(const std::uint8_t* numbers, int at, std::uint8_t* file) {
  for (int i = 0; i < 256; ++i) bits<Way::Write>(file[i % 32], i / 32, 1, numbers[i], at);
}

// Two bits each: number i is in byte i % 32 of its half, at 2 · (i % 128 / 32).
void give_pairs256(const std::uint8_t* numbers, int at, std::uint8_t* file) {
  for (int i = 0; i < 256; ++i)
    bits<Way::Write>(file[i / 128 * 32 + i % 32], i % 128 / 32 * 2, 2, numbers[i], at);
}

void give_nibbles_by_groups(const std::uint8_t* numbers, std::uint8_t* file) {
  for (int i = 0; i < 256; ++i)
    bits<Way::Write>(file[i / 64 * 32 + i % 32], i % 64 / 32 * 4, 4, numbers[i], 0);
}

// The numbers of a block to where the file has them: what put_numbers() does, the other way.
template <DType T>
void give_numbers(const std::uint8_t* numbers, std::uint8_t* file) {
  using enum DType;
  constexpr QuantLayout kLayout = quant_layout(T);
  if constexpr (T == Q8_0) {
    std::memcpy(file + 2, numbers, 32);
  } else if constexpr (T == Q6_K) {
    for (int i = 0; i < 256; ++i)
      bits<Way::Write>(file[i / 128 * 64 + i % 64], i % 128 / 64 * 4, 4, numbers[i], 0);
    give_pairs256(numbers, 4, file + 128);
  } else if constexpr (T == Q3_K) {
    give_bits256(numbers, 2, file);
    give_pairs256(numbers, 0, file + 32);
  } else if constexpr (T == Q2_K) {
    give_pairs256(numbers, 0, file + 16);
  } else if constexpr (T == IQ4_XS) {
    for (int group = 0; group < 8; ++group)
      give_nibbles16(numbers + group * 32, file + 8 + group * 16);
  } else if constexpr (T == Q4_K || T == Q5_K) {
    if constexpr (T == Q5_K) give_bits256(numbers, 4, file + 16);
    give_nibbles_by_groups(numbers, file + (T == Q5_K ? 48 : 16));
  } else {
    static_assert(kLayout.elems == 32);
    file += kLayout.has_min ? 4 : 2;
    if constexpr (kLayout.high_bits == 1) {
      give_bits32(numbers, 4, file);
      file += 4;
    }
    give_nibbles16(numbers, file);
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

// The numbers of 32 k of one row, from their vectors.
template <DType T>
void take_numbers(const std::uint8_t* vectors, std::int64_t lane, std::uint8_t* numbers) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr std::uint32_t kFlip = T == DType::Q8_0 ? 0x80808080 : 0;
  const auto part = [&](int width, int at, std::int64_t offset) {
    const std::uint32_t mask = kInEachByte * ((1U << width) - 1);
    for (int step = 0; step < 8; ++step) {
      const Slot slot = slot_of(width, step);
      const std::uint8_t* place = vectors + offset + slot.vector * kVectorBytes + lane * 4;
      const std::uint32_t word = (load_word(place) ^ kFlip) >> slot.bit & mask;
      store_word(load_word(numbers + step * 4) | word << at, numbers + step * 4);
    }
  };
  if constexpr (kLayout.high_bits > 0) part(kLayout.high_bits, kLayout.low_bits, 0);
  part(kLayout.low_bits, 0, kLayout.high_bits * kVectorBytes);
}

// visit(byte of the record, value of the head) for each scale and minimum of a row.
template <DType T, class Byte, class F>
void each_scale(Byte* record, std::int64_t lane, BlockHead& head, const F& visit) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kScales = kLayout.elems == 32 ? 0 : kLayout.halves ? 2 : 1;
  Byte* group = record + kLayout.head_bytes() + lane;
  for (int g = 0; g < kLayout.elems / 32; ++g) {
    for (int s = 0; s < kScales; ++s) {
      visit(group[s * kTileRows], head.scales[g * kScales + s]);
      if constexpr (kLayout.has_min)
        visit(group[(kScales + s) * kTileRows], head.mins[g * kScales + s]);
    }
    group += kLayout.scale_bytes() + kLayout.number_bytes();
  }
}

// One row's part of a record's head.
template <DType T, Way way, class Byte>
void visit_record_head(Byte* record, std::int64_t lane, BlockHead& head) {
  half_at<way>(record + lane * 2, head.step);
  if constexpr (quant_layout(T).has_min) half_at<way>(record + kTileRows * 2 + lane * 2, head.min);
  each_scale<T>(record, lane, head, [](Byte& stored, std::int8_t& value) {
    if constexpr (way == Way::Read) {
      value = static_cast<std::int8_t>(stored);
    } else {
      stored = static_cast<std::uint8_t>(value);
    }
  });
}

// One row's part of a record as a block of the file.
template <DType T>
void give_block(const std::uint8_t* record, std::int64_t lane, std::uint8_t* file) {
  constexpr QuantLayout kLayout = quant_layout(T);
  std::memset(file, 0, static_cast<std::size_t>(tensor::info(T).block_bytes));
  BlockHead head;
  visit_record_head<T, Way::Read>(record, lane, head);
  visit_head<Way::Write, T>(file, head);
  std::uint8_t numbers[256] = {};
  const std::uint8_t* group = record + kLayout.head_bytes() + kLayout.scale_bytes();
  for (std::int64_t k = 0; k < kLayout.elems; k += 32) {
    take_numbers<T>(group, lane, numbers + k);
    group += kLayout.scale_bytes() + kLayout.number_bytes();
  }
  give_numbers<T>(numbers, file);
}

// A block of each of a few rows to the record that they share.
template <DType T>
void pack_blocks(const RowBytes& blocks, std::int64_t lane, std::uint8_t* record) {
  constexpr QuantLayout kLayout = quant_layout(T);
  if constexpr (T == DType::Q4_K || T == DType::Q5_K) {
    put_head_of_k<T>(blocks, lane, record);
  } else if constexpr (T == DType::Q6_K) {
    put_head_of_q6_k<T>(blocks, lane, record);
  } else {
    for (std::int64_t i = 0; i < kRowsAtOnce; ++i) {
      BlockHead head;
      visit_head<Way::Read, T>(blocks.rows[i], head);
      visit_record_head<T, Way::Write>(record, lane + i, head);
    }
  }
  put_numbers<T>(blocks, record + kLayout.head_bytes() + kLayout.scale_bytes() + lane * 4);
}

// What stands for the blocks of rows that there are none of.
alignas(64) constexpr std::uint8_t kNoBlock[256] = {};

// A few rows of a tile on their way into it.
template <DType T>
class RowsOfTile {
 public:
  static constexpr QuantLayout kLayout = quant_layout(T);

  RowsOfTile(const WeightSource& source, std::int64_t first, std::int64_t count, std::int64_t lane,
             std::uint8_t* tile)
      : file_bytes_(tensor::info(T).block_bytes), lane_(lane), tile_(tile) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
    for (std::int64_t i = 0; i < kRowsAtOnce; ++i) {
      const std::int64_t row = first + lane + i;
      is_there_[i] = lane + i < count;
      rows_[i] =
          is_there_[i] ? bytes + row * source.row_stride / kLayout.elems * file_bytes_ : kNoBlock;
    }
  }

  // Asks for `count` blocks from `block` on, and for these rows' part of their records.
  void ask_for(std::int64_t block, std::int64_t count) const {
    for (std::int64_t i = 0; i < kRowsAtOnce && is_there_[i]; ++i) {
      const std::uint8_t* blocks = rows_[i] + block * file_bytes_;
      for (std::int64_t at = 0; at < count * file_bytes_; at += kVectorBytes)
        __builtin_prefetch(blocks + at, 0, 2);
    }
    const std::uint8_t* records = tile_ + block * kLayout.record_bytes();
    const std::int64_t bytes = count * kLayout.record_bytes();
    const std::int64_t end = bytes * (lane_ + kRowsAtOnce) / kTileRows;
    for (std::int64_t at = bytes * lane_ / kTileRows; at < end; at += kVectorBytes)
      __builtin_prefetch(records + at, 1, 2);
  }

  void pack(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t block = begin; block < end; ++block) {
      RowBytes blocks = {};
      for (std::int64_t i = 0; i < kRowsAtOnce; ++i)
        blocks.rows[i] = rows_[i] + (is_there_[i] ? block * file_bytes_ : 0);
      pack_blocks<T>(blocks, lane_, tile_ + block * kLayout.record_bytes());
    }
  }

 private:
  std::int64_t file_bytes_, lane_;
  std::uint8_t* tile_;
  const std::uint8_t* rows_[kRowsAtOnce];
  bool is_there_[kRowsAtOnce];
};

template <DType T>
void pack_quants(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                 std::uint8_t* out) {
  constexpr QuantLayout kLayout = quant_layout(T);
  const std::int64_t blocks = source.cols / kLayout.elems;
  // A few records at a time: what all rows write to stays in the nearest cache.
  constexpr std::int64_t kAtOnce = std::max<std::int64_t>(1, 4096 / kLayout.record_bytes());
  for (std::int64_t begin = 0; begin < blocks; begin += kAtOnce) {
    const std::int64_t end = std::min(begin + kAtOnce, blocks);
    for (std::int64_t lane = 0; lane < kTileRows; lane += kRowsAtOnce) {
      const RowsOfTile<T> rows(source, first, lanes, lane, out);
      rows.ask_for(end, std::min(kAtOnce, blocks - end));
      rows.pack(begin, end);
    }
  }
}

template <DType T>
using Number = std::conditional_t<T == DType::F32, std::uint32_t, std::uint16_t>;

// Columns begin..end, one by one.
template <DType T>
void pack_columns(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                  std::int64_t begin, std::int64_t end, std::uint8_t* out) {
  const std::byte* bytes = source.bytes.data();
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Number<T>));
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

// Columns of a whole tile whose rows are the file's, as many as are turned at once.
template <DType T>
inline constexpr std::int64_t kTurned = T == DType::F32 ? 4 : 8;

template <DType T>
void turn_columns(const WeightSource& source, std::int64_t first, std::int64_t k,
                  std::uint8_t* out) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Number<T>));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
  const std::uint8_t* rows[kTileRows];
  for (std::int64_t lane = 0; lane < kTileRows; ++lane)
    rows[lane] = bytes + ((first + lane) * source.row_stride + k) * kBytes;
  out += number_offset(T, k, 0);
  if constexpr (T == DType::F16) {
    for (std::int64_t lane = 0; lane < kTileRows; lane += 8)
      put_halves(rows + lane, 0, out + lane * kBytes, kTileRows * kBytes);
  } else {
    for (std::int64_t lane = 0; lane < kTileRows; lane += kRowsAtOnce) {
      Words words[4];
      load_words<4>({{rows[lane], rows[lane + 1], rows[lane + 2], rows[lane + 3]}}, words);
      for (int i = 0; i < 4; ++i) put_words(words[i], out + lane * 4, i);
    }
  }
}

template <DType T>
void pack_numbers(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                  std::uint8_t* out) {
  constexpr std::int64_t kAtOnce = 64;
  const bool turned = lanes == kTileRows && source.col_stride == 1;
  const std::int64_t whole = turned ? source.cols / kTurned<T> * kTurned<T> : 0;
  for (std::int64_t k = 0; k < whole; k += kTurned<T>) turn_columns<T>(source, first, k, out);
  // An odd last column of pairs has none beside it.
  const std::int64_t cols = T == DType::BF16 ? (source.cols + 1) / 2 * 2 : source.cols;
  for (std::int64_t begin = whole; begin < cols; begin += kAtOnce)
    pack_columns<T>(source, first, lanes, begin, std::min(begin + kAtOnce, cols), out);
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
      give_block<type()>(tile + b * kLayout.record_bytes(), lane, out);
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
