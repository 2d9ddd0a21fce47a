// Element types of weight files and of compute, with their block geometry. One table, no maths.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace llorch::tensor {

enum class DType : std::uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8E4M3,
  F8E5M2,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  Bool,
  // ggml block types
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q8_1,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  Q8_K,
  IQ1_S,
  IQ1_M,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  IQ4_NL,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  MXFP4,
  NVFP4,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::NVFP4) + 1;

struct DTypeInfo {
  DType dtype;
  std::string_view name;     // as people write it: "F16", "Q4_K"
  std::int32_t block_elems;  // elements per block; 1 for plain types
  std::int32_t block_bytes;  // bytes per block
  std::int32_t ggml_id;      // number in a GGUF file, -1 where GGUF has none
};

const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) {
  return info(dtype).name;
}
inline bool is_block_type(DType dtype) {
  return info(dtype).block_elems > 1;
}
std::span<const DTypeInfo> all_dtypes();

std::optional<DType> dtype_from_ggml_id(std::uint32_t id);

// Bytes of `elems` elements stored in rows that are whole blocks; nothing when elems is negative,
// not a multiple of the block, or the product overflows.
std::optional<std::int64_t> storage_bytes(DType dtype, std::int64_t elems);

}  // namespace llorch::tensor
