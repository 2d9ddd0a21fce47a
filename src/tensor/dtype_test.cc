#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace llorch::tensor {
namespace {

TEST(DType, TableIsInEnumOrderAndNamesAreUnique) {
  std::set<std::string_view> names;
  int index = 0;
  for (const DTypeInfo& row : all_dtypes()) {
    EXPECT_EQ(static_cast<int>(row.dtype), index++);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(row.block_elems, 0);
    EXPECT_GT(row.block_bytes, 0);
  }
}

// The original project had 36 bytes for Q8_0, 82 for Q2_K and 4 for everything in one place.
TEST(DType, BlockGeometryIsTheFormats) {
  const auto expect = [](DType dtype, int elems, int bytes) {
    EXPECT_EQ(info(dtype).block_elems, elems) << name(dtype);
    EXPECT_EQ(info(dtype).block_bytes, bytes) << name(dtype);
  };
  expect(DType::Q4_0, 32, 2 + 16);
  expect(DType::Q4_1, 32, 2 + 2 + 16);
  expect(DType::Q5_0, 32, 2 + 4 + 16);
  expect(DType::Q5_1, 32, 2 + 2 + 4 + 16);
  expect(DType::Q8_0, 32, 2 + 32);
  expect(DType::Q2_K, 256, 16 + 64 + 2 + 2);
  expect(DType::Q3_K, 256, 32 + 64 + 12 + 2);
  expect(DType::Q4_K, 256, 2 + 2 + 12 + 128);
  expect(DType::Q5_K, 256, 2 + 2 + 12 + 32 + 128);
  expect(DType::Q6_K, 256, 128 + 64 + 16 + 2);
  expect(DType::IQ4_NL, 32, 2 + 16);
  expect(DType::IQ4_XS, 256, 2 + 2 + 4 + 128);
  expect(DType::MXFP4, 32, 1 + 16);
}

TEST(DType, GgmlIdsRoundTrip) {
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.ggml_id >= 0) {
      EXPECT_EQ(dtype_from_ggml_id(static_cast<std::uint32_t>(row.ggml_id)), row.dtype);
    }
  }
  for (const std::uint32_t removed : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 99U, 4294967295U}) {
    EXPECT_EQ(dtype_from_ggml_id(removed), std::nullopt) << removed;
  }
}

TEST(DType, StorageBytesRefusesPartBlocksAndOverflow) {
  EXPECT_EQ(storage_bytes(DType::Q8_0, 64), 68);
  EXPECT_EQ(storage_bytes(DType::F32, 0), 0);
  EXPECT_EQ(storage_bytes(DType::Q8_0, 33), std::nullopt);
  EXPECT_EQ(storage_bytes(DType::F32, -4), std::nullopt);
  EXPECT_EQ(storage_bytes(DType::F64, std::numeric_limits<std::int64_t>::max() / 2), std::nullopt);
}

}  // namespace
}  // namespace llorch::tensor
