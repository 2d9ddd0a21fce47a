// Tiles of codes: packing them, their books, and opening them in plain C++, which is the definition
// of what the tuned sets do.
#include "compute/cpu/packed_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "compute/codebook_types.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// visit(byte of the block, std::integral_constant<std::size_t, bytes of a unit>) for each unit.
template <class F>
void each_unit(const CodeBlock& block, const F& visit) {
  std::int64_t at = 0;
  const auto visit_run = [&](std::int64_t count, auto bytes) {
    for (std::int64_t i = 0; i < count; ++i, at += std::int64_t{bytes}) visit(at, bytes);
  };
  for (const CodeUnits& run : block.units) {
    if (run.bytes == 1) visit_run(run.count, std::integral_constant<std::size_t, 1>());
    if (run.bytes == 2) visit_run(run.count, std::integral_constant<std::size_t, 2>());
    if (run.bytes == 4) visit_run(run.count, std::integral_constant<std::size_t, 4>());
  }
}

float load_half(const std::uint8_t* p) {
  return tensor::half_to_float(static_cast<std::uint16_t>(half_word(p)));
}

// A block taken apart: its numbers, and a step for each 32 of them or for each 16.
struct Numbers {
  std::uint8_t values[256];  // plus 128
  float steps[16];
};
std::uint8_t biased(int number) {
  return static_cast<std::uint8_t>(number + 128);
}

template <class Type>
constexpr bool kShifted = requires {
  Type::kShift;
};

// Numbers of IQ1 are 8 · (level ± 1/8), their steps an eighth.
template <class Type>
void take_apart(const std::uint8_t* block, int num_steps, Numbers& out) {
  constexpr std::uint32_t kMask = (1U << Type::kLevelBits) - 1U;
  const float d = tensor::half_to_float(static_cast<std::uint16_t>(Type::scale_bits(block)));
  for (int n = 0; n < 32; ++n) {
    const Eight eight = Type::eight(block, d, n);
    out.steps[n * num_steps / 32] = kShifted<Type> ? eight.step / 8 : eight.step;
    for (int i = 0; i < 8; ++i) {
      const int level = Type::level(static_cast<int>(eight.code >> (i * Type::kLevelBits) & kMask));
      int number = (eight.signs >> i & 1U) != 0 ? -level : level;
      if constexpr (kShifted<Type>) number = 8 * level + (eight.shift < 0 ? -1 : 1);
      out.values[n * 8 + i] = biased(number);
    }
  }
}

int ternary_digit(int byte, int digit) {
  for (; digit > 0; --digit) byte = byte * 3 & 0xFF;
  return (byte * 3 >> 8) - 1;
}

void take_apart_tq1_0(const std::uint8_t* block, Numbers& out) {
  std::uint8_t* values = out.values;
  const auto run = [&](const std::uint8_t* bytes, int count, int digits) {
    for (int digit = 0; digit < digits; ++digit) {
      for (int i = 0; i < count; ++i) *values++ = biased(ternary_digit(bytes[i], digit));
    }
  };
  run(block, 32, 5);
  run(block + 32, 16, 5);
  run(block + 48, 4, 4);
  std::fill_n(out.steps, 8, load_half(block + 52));
}

void take_apart_tq2_0(const std::uint8_t* block, Numbers& out) {
  for (int i = 0; i < 256; ++i)
    out.values[i] = biased((block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
  std::fill_n(out.steps, 8, load_half(block + 64));
}

// `count` bytes: the values of their low nibbles, then those of their high ones.
void take_apart_fp4(const std::uint8_t* bytes, int count, std::uint8_t* values) {
  for (int i = 0; i < count; ++i) {
    values[i] = biased(fp4_level(bytes[i] & 0xF));
    values[count + i] = biased(fp4_level(bytes[i] >> 4));
  }
}

template <DType T>
void take_apart(const std::uint8_t* block, Numbers& out) {
  using enum DType;
  constexpr int kSteps = quant_layout(T).halves ? 16 : 8;
  if constexpr (T == IQ1_S) return take_apart<struct IQ1_S>(block, kSteps, out);
  if constexpr (T == IQ1_M) return take_apart<struct IQ1_M>(block, kSteps, out);
  if constexpr (T == IQ2_XXS) return take_apart<struct IQ2_XXS>(block, kSteps, out);
  if constexpr (T == IQ2_XS) return take_apart<struct IQ2_XS>(block, kSteps, out);
  if constexpr (T == IQ2_S) return take_apart<struct IQ2_S>(block, kSteps, out);
  if constexpr (T == IQ3_XXS) return take_apart<struct IQ3_XXS>(block, kSteps, out);
  if constexpr (T == IQ3_S) return take_apart<struct IQ3_S>(block, kSteps, out);
  if constexpr (T == TQ1_0) return take_apart_tq1_0(block, out);
  if constexpr (T == TQ2_0) return take_apart_tq2_0(block, out);
  if constexpr (T == MXFP4) {
    out.steps[0] = std::bit_cast<float>(mxfp4_half_scale_bits(block[0]));
    take_apart_fp4(block + 1, 16, out.values);
  }
  if constexpr (T == NVFP4) {
    for (int part = 0; part < 4; ++part) {
      out.steps[part] = nvfp4_half_scale(block[part]);
      take_apart_fp4(block + 4 + part * 8, 8, out.values + part * 16);
    }
  }
}

template <DType T>
void open(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr CodeBlock kBlock = code_block(T);
  constexpr int kSteps = kLayout.halves ? 2 : 1;
  constexpr auto kGroups = static_cast<int>(kBlock.elems / kInputBlock);
  std::uint8_t block[static_cast<std::size_t>(kBlock.bytes())] = {};
  Numbers numbers;
  for (std::int64_t b = 0; b < blocks; b += kGroups, tile += kBlock.record_bytes()) {
    for (std::int64_t lane = 0; lane < kTileRows; ++lane) {
      unpack_codes(T, tile, lane, kBlock.elems, block);
      take_apart<T>(block, numbers);
      std::uint8_t* record = out;
      for (int g = 0; g < kGroups; ++g, record += kLayout.record_bytes()) {
        for (int s = 0; s < kSteps; ++s) {
          std::memcpy(record + s * kVectorBytes + lane * 4, &numbers.steps[g * kSteps + s],
                      sizeof(float));
        }
        std::uint8_t* vectors = record + kLayout.head_bytes() + lane * 4;
        for (int s = 0; s < 8; ++s)
          std::memcpy(vectors + s * kVectorBytes, numbers.values + g * 32 + s * 4, 4);
      }
    }
    out += kGroups * kLayout.record_bytes();
  }
}

// What the levels of an entry stand for, a byte each.
template <class Type>
std::uint64_t numbers_of(std::uint32_t entry, int count) {
  constexpr std::uint32_t kMask = (1U << Type::kLevelBits) - 1U;
  std::uint64_t numbers = 0;
  for (int i = 0; i < count; ++i) {
    const int level = Type::level(static_cast<int>(entry >> (i * Type::kLevelBits) & kMask));
    const int number = kShifted<Type> ? 8 * level : level;
    numbers |= static_cast<std::uint64_t>(number + 128) << (8 * i);
  }
  return numbers;
}

template <class Type, std::size_t size, template <std::size_t> class Book>
void fill(Book<size>& book, std::uint32_t (*entry_of)(std::uint32_t)) {
  constexpr int kCount = sizeof(book.numbers[0]);
  constexpr int kHalfBits = kCount / 2 * Type::kLevelBits;
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::uint32_t entry = entry_of(i);
    book.low[i] = static_cast<std::uint8_t>(entry & ((1U << kHalfBits) - 1U));
    book.high[i] = static_cast<std::uint8_t>(entry >> kHalfBits);
    book.numbers[i] = static_cast<std::remove_reference_t<decltype(book.numbers[0])>>(
        numbers_of<Type>(entry, kCount));
  }
}

template <class Type>
void fill(NumberTable& table) {
  constexpr int kLevels = 1 << Type::kLevelBits;
  for (int i = 0; i < 64; ++i) {
    const int level = Type::level(i % kLevels);
    const bool negative = (i & kLevels) != 0;
    int number = negative ? -level : level;
    if constexpr (kShifted<Type>) number = 8 * level + (negative ? -1 : 1);
    table.numbers[i] = static_cast<std::uint8_t>(number + 128);
  }
}

CodeBooks make_books() {
  CodeBooks books;
  fill<IQ2_XXS>(books.iq2_xxs, iq2_xxs_code);
  fill<IQ2_XS>(books.iq2_xs, iq2_xs_code);
  fill<IQ2_S>(books.iq2_s, iq2_s_code);
  fill<IQ1_S>(books.iq1, iq1_code);
  fill<IQ3_XXS>(books.iq3_xxs, iq3_xxs_code);
  fill<IQ3_S>(books.iq3_s, iq3_s_code);
  fill<IQ1_S>(books.iq1_numbers);
  fill<IQ2_XXS>(books.iq2_numbers);
  fill<IQ3_XXS>(books.iq3_xxs_numbers);
  fill<IQ3_S>(books.iq3_s_numbers);
  for (int i = 0; i < 64; ++i)
    books.fp4_numbers.numbers[i] = static_cast<std::uint8_t>(fp4_level(i % 16) + 128);
  for (std::uint32_t i = 0; i < 128; ++i)
    books.signs[i] = static_cast<std::uint8_t>(eight_signs(i));
  return books;
}

}  // namespace

const CodeBooks& code_books() {
  static const CodeBooks books = make_books();
  return books;
}

void pack_codes(const WeightSource& source, std::int64_t first, std::int64_t lanes,
                std::uint8_t* out) {
  const CodeBlock block = code_block(source.dtype);
  CHECK(block.elems > 0);
  const std::int64_t blocks = source.cols / block.elems;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
  std::memset(out, 0, static_cast<std::size_t>(blocks * block.record_bytes()));
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::uint8_t* record = out + b * block.record_bytes();
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::uint8_t* from =
          bytes + ((first + lane) * source.row_stride / block.elems + b) * block.bytes();
      each_unit(block, [&](std::int64_t at, auto size) {
        std::memcpy(record + at * kTileRows + lane * std::int64_t{size}, from + at, size);
      });
    }
  }
}

void unpack_codes(DType dtype, const std::uint8_t* tile, std::int64_t lane, std::int64_t k,
                  std::uint8_t* out) {
  const CodeBlock block = code_block(dtype);
  CHECK(block.elems > 0);
  for (std::int64_t b = 0; b < k / block.elems; ++b, tile += block.record_bytes()) {
    each_unit(block, [&](std::int64_t at, auto size) {
      std::memcpy(out + at, tile + at * kTileRows + lane * std::int64_t{size}, size);
    });
    out += block.bytes();
  }
}

namespace {
constexpr CodeKernels make_kernels() {
  CodeKernels kernels = {};
  with_each_code_type(
      [&](auto type) { kernels.open[static_cast<std::size_t>(type())] = open<type()>; });
  return kernels;
}
}  // namespace

constinit const CodeKernels kCodesPlain = make_kernels();

}  // namespace llorch::compute
