// Tiles of the types whose values are codes: entries of a book (IQ1, IQ2, IQ3), digits of base
// three (TQ1_0, TQ2_0), floats of four bits (MXFP4, NVFP4).
//
// Such a tile is the blocks of 16 rows beside each other, as large as in the file: a block is a
// list of units of one, two or four bytes, and a record of the tile has each unit of row 0, of row
// 1 … of row 15, then the next unit. So a unit that begins at byte b of the block begins at byte 16
// · b of the record, and four bytes of each row are one vector.
//
// A stretch of it is opened before it is multiplied, once for all rows of x: into records of
// quant_layout(), with for each 32 k float32 steps of the 16 rows, one or for each half, and eight
// vectors of whole numbers plus 128.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compute/cpu/packed.h"

namespace llorch::compute {

// `count` units of so many bytes.
struct CodeUnits {
  std::int64_t bytes = 0, count = 0;
};
// A block of the file.
struct CodeBlock {
  std::int64_t elems = 0;
  std::array<CodeUnits, 5> units = {};

  constexpr std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const CodeUnits& run : units) sum += run.bytes * run.count;
    return sum;
  }
  constexpr std::int64_t record_bytes() const { return bytes() * kTileRows; }
};

constexpr CodeBlock code_block(tensor::DType dtype) {
  using enum tensor::DType;
  switch (dtype) {
    case IQ1_S:
      return {.elems = 256, .units = {{{2, 1}, {4, 8}, {2, 8}}}};
    case IQ1_M:
      return {.elems = 256, .units = {{{4, 8}, {2, 12}}}};
    case IQ2_XXS:
      return {.elems = 256, .units = {{{2, 1}, {4, 16}}}};
    case IQ2_XS:
      return {.elems = 256, .units = {{{2, 1}, {4, 16}, {1, 8}}}};
    case IQ2_S:
      return {.elems = 256, .units = {{{2, 1}, {4, 16}, {1, 16}}}};
    case IQ3_XXS:
      return {.elems = 256, .units = {{{2, 1}, {4, 24}}}};
    case IQ3_S:
      return {.elems = 256, .units = {{{2, 1}, {4, 16}, {1, 8}, {4, 8}, {1, 4}}}};
    case TQ1_0:
      return {.elems = 256, .units = {{{4, 13}, {2, 1}}}};
    case TQ2_0:
      return {.elems = 256, .units = {{{4, 16}, {2, 1}}}};
    case MXFP4:
      return {.elems = 32, .units = {{{1, 1}, {4, 4}}}};
    case NVFP4:
      return {.elems = 64, .units = {{{1, 4}, {4, 8}}}};
    default:
      return {};
  }
}

// As pack_tile() and unpack_row(), for these types. Lanes without a row are zero.
void pack_codes(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                std::uint8_t* out);
void unpack_codes(tensor::DType dtype, const std::uint8_t* tile, std::int64_t lane, std::int64_t k,
                  std::uint8_t* out);

// A book as kernels look things up in it.
template <std::size_t size>
struct PairedBook {
  // Byte by byte: the lower and the upper half of an entry's levels, by their numbers.
  alignas(64) std::uint8_t low[size];
  alignas(64) std::uint8_t high[size];
};
template <std::size_t size>
struct Book8 : PairedBook<size> {
  std::uint64_t numbers[size];  // eight bytes: what the levels stand for, plus 128
};
template <std::size_t size>
struct Book4 : PairedBook<size> {
  std::uint32_t numbers[size];
};
// Numbers plus 128 by what the low bits of a byte say, repeated 16, 8 or 4 times.
struct alignas(64) NumberTable {
  std::uint8_t numbers[64];
};

struct CodeBooks {
  Book8<256> iq2_xxs;
  Book8<512> iq2_xs;
  Book8<1024> iq2_s;
  Book8<2048> iq1;  // numbers are 8 · level
  Book4<256> iq3_xxs;
  Book4<512> iq3_s;
  // Two bits of level (IQ1, IQ2) or three, then one: the sign, or for IQ1 the shift's.
  NumberTable iq1_numbers, iq2_numbers, iq3_xxs_numbers, iq3_s_numbers;
  NumberTable fp4_numbers;              // of a nibble
  alignas(64) std::uint8_t signs[128];  // the eight of seven that are stored
};
const CodeBooks& code_books();

}  // namespace llorch::compute
