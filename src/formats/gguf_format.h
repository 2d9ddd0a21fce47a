// What the GGUF format itself fixes, for its reader and its writer. Private to formats/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "formats/metadata.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace llorch::formats::gguf {

inline constexpr std::string_view kMagic =
    "GGUF";  // in this byte order, whatever the file's endianness
inline constexpr std::uint32_t kVersionMin = 2;  // 1 had 32-bit counts
inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::size_t kKeyBytesMax = 65535;
inline constexpr std::size_t kTensorNameBytesMax = 64;
inline constexpr std::uint32_t kRankMax = 4;

static_assert(std::endian::native == std::endian::little, "GGUF fields are copied as they are");
// The enumerators are the numbers in the file.
inline constexpr auto kElementTypeLast = static_cast<std::uint32_t>(ElementType::F64);
static_assert(kElementTypeLast == 12 && static_cast<int>(ElementType::String) == 8);

constexpr bool is_alignment(std::uint64_t value) {
  return std::has_single_bit(value) && value <= std::uint64_t{1} << 31;
}

// The next multiple of a power of two; `value` must be below 2^63.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Not empty, within the format's length, valid UTF-8. Both name the offender.
Status check_key(std::string_view key);
Status check_tensor_name(std::string_view name);

// Bytes of a tensor of rank 1 to 4; refuses rows that are not whole blocks and sizes beyond int64.
Result<std::int64_t> tensor_bytes(tensor::DType dtype, const tensor::Shape& shape);

}  // namespace llorch::formats::gguf
