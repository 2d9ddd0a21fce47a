#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace llorch::tensor {
namespace {

// In enum order; info() relies on it and dtype_test checks it. Block sizes are the ggml format's
// own.
constexpr std::array<DTypeInfo, kNumDTypes> kTable = {{
    {DType::F64, "F64", 1, 8, 28},
    {DType::F32, "F32", 1, 4, 0},
    {DType::F16, "F16", 1, 2, 1},
    {DType::BF16, "BF16", 1, 2, 30},
    {DType::F8E4M3, "F8_E4M3", 1, 1, -1},
    {DType::F8E5M2, "F8_E5M2", 1, 1, -1},
    {DType::I8, "I8", 1, 1, 24},
    {DType::I16, "I16", 1, 2, 25},
    {DType::I32, "I32", 1, 4, 26},
    {DType::I64, "I64", 1, 8, 27},
    {DType::U8, "U8", 1, 1, -1},
    {DType::U16, "U16", 1, 2, -1},
    {DType::U32, "U32", 1, 4, -1},
    {DType::U64, "U64", 1, 8, -1},
    {DType::Bool, "BOOL", 1, 1, -1},
    {DType::Q4_0, "Q4_0", 32, 18, 2},
    {DType::Q4_1, "Q4_1", 32, 20, 3},
    {DType::Q5_0, "Q5_0", 32, 22, 6},
    {DType::Q5_1, "Q5_1", 32, 24, 7},
    {DType::Q8_0, "Q8_0", 32, 34, 8},
    {DType::Q8_1, "Q8_1", 32, 36, 9},
    {DType::Q2_K, "Q2_K", 256, 84, 10},
    {DType::Q3_K, "Q3_K", 256, 110, 11},
    {DType::Q4_K, "Q4_K", 256, 144, 12},
    {DType::Q5_K, "Q5_K", 256, 176, 13},
    {DType::Q6_K, "Q6_K", 256, 210, 14},
    {DType::Q8_K, "Q8_K", 256, 292, 15},
    {DType::IQ1_S, "IQ1_S", 256, 50, 19},
    {DType::IQ1_M, "IQ1_M", 256, 56, 29},
    {DType::IQ2_XXS, "IQ2_XXS", 256, 66, 16},
    {DType::IQ2_XS, "IQ2_XS", 256, 74, 17},
    {DType::IQ2_S, "IQ2_S", 256, 82, 22},
    {DType::IQ3_XXS, "IQ3_XXS", 256, 98, 18},
    {DType::IQ3_S, "IQ3_S", 256, 110, 21},
    {DType::IQ4_NL, "IQ4_NL", 32, 18, 20},
    {DType::IQ4_XS, "IQ4_XS", 256, 136, 23},
    {DType::TQ1_0, "TQ1_0", 256, 54, 34},
    {DType::TQ2_0, "TQ2_0", 256, 66, 35},
    {DType::MXFP4, "MXFP4", 32, 17, 39},
    {DType::NVFP4, "NVFP4", 64, 36, 40},
}};

}  // namespace

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  CHECK(index < kTable.size());
  return kTable[index];
}

std::span<const DTypeInfo> all_dtypes() {
  return kTable;
}

std::optional<DType> dtype_from_ggml_id(std::uint32_t id) {
  for (const DTypeInfo& row : kTable) {
    if (row.ggml_id >= 0 && static_cast<std::uint32_t>(row.ggml_id) == id) return row.dtype;
  }
  return std::nullopt;
}

std::optional<std::int64_t> storage_bytes(DType dtype, std::int64_t elems) {
  const DTypeInfo& row = info(dtype);
  if (elems < 0 || elems % row.block_elems != 0) return std::nullopt;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elems / row.block_elems, std::int64_t{row.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace llorch::tensor
