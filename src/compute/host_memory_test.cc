#include "compute/host_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace llorch::compute {
namespace {

using tensor::DType;

TEST(AllocateHost, GivesZeroedAlignedMemory) {
  const auto buffer = allocate_host(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->bytes(), 1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
  const auto* bytes = static_cast<const char*>(buffer->data());
  EXPECT_EQ(std::vector<char>(bytes, bytes + 1000), std::vector<char>(1000, 0));
  EXPECT_TRUE(allocate_host(0).ok());
}

TEST(AllocateHost, NamesTheBytesItCannotGive) {
  for (const std::int64_t bytes : {std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}}) {
    const auto buffer = allocate_host(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code, ErrorCode::OutOfMemory);
    EXPECT_EQ(buffer.error().message,
              "cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  }
}

WeightSource source_of(DType dtype, std::int64_t rows, std::int64_t cols,
                       std::span<const std::byte> bytes) {
  return {.name = "blk.0.ffn_gate.weight",
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .row_stride = cols,
          .bytes = bytes};
}

TEST(LoadHostWeight, KeepsTheFilesBytesWhereTheyServe) {
  alignas(8) std::byte bytes[4 * 144] = {};
  for (const DType dtype : {DType::F32, DType::F16, DType::Q4_K}) {
    const std::int64_t cols = dtype == DType::Q4_K ? 256 : 10;
    const auto weight = load_host_weight(source_of(dtype, 3, cols, bytes));
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    EXPECT_EQ(weight->data, bytes);
    EXPECT_EQ(weight->storage.bytes(), 0);
  }
  // Numbers at an odd address are copied, blocks are not.
  const auto odd = std::span<const std::byte>(bytes).subspan(1);
  EXPECT_NE(load_host_weight(source_of(DType::F32, 3, 10, odd))->data, odd.data());
  EXPECT_EQ(load_host_weight(source_of(DType::Q4_K, 3, 256, odd))->data, odd.data());
}

TEST(LoadHostWeight, GathersStridedRows) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};  // (3, 2), wanted as its transpose (2, 3)
  WeightSource source = source_of(DType::F32, 2, 3, std::as_bytes(std::span(values)));
  source.row_stride = 1;
  source.col_stride = 2;
  const auto weight = load_host_weight(source);
  ASSERT_TRUE(weight.ok());
  std::vector<float> found(6);
  std::memcpy(found.data(), weight->data, 24);
  EXPECT_EQ(found, (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST(LoadHostWeight, NamesTypeAndTensorItCannotTake) {
  std::vector<std::byte> bytes(292);
  const auto weight = load_host_weight(source_of(DType::Q8_K, 1, 256, bytes));
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(weight.error().message, "not supported: Q8_K in blk.0.ffn_gate.weight");
}

TEST(LoadHostWeight, RefusesBytesThatDoNotHoldTheMatrix) {
  std::vector<std::byte> bytes(36);
  EXPECT_TRUE(load_host_weight(source_of(DType::Q4_0, 2, 32, bytes)).ok());
  EXPECT_FALSE(load_host_weight(source_of(DType::Q4_0, 3, 32, bytes)).ok());
  EXPECT_FALSE(load_host_weight(source_of(DType::Q4_0, 1, 40, bytes)).ok());
  EXPECT_FALSE(load_host_weight(source_of(DType::F32, 0, 4, bytes)).ok());
  EXPECT_FALSE(load_host_weight(source_of(DType::F32, 2, 5, bytes)).ok());
  WeightSource source = source_of(DType::Q4_0, 1, 32, bytes);
  source.col_stride = 2;
  EXPECT_FALSE(load_host_weight(source).ok());
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max() / 2;
  for (const std::int64_t stride : {kHuge, std::int64_t{-1}}) {
    source = source_of(DType::F32, 3, 2, bytes);
    source.row_stride = stride;
    const auto weight = load_host_weight(source);
    ASSERT_FALSE(weight.ok());
    EXPECT_NE(weight.error().message.find("blk.0.ffn_gate.weight (3 x 2 of F32)"),
              std::string::npos);
  }
}

// One row or column repeated through a stride of zero reaches few bytes but makes a large copy.
TEST(LoadHostWeight, RefusesARepeatedRowWhoseCopyOverflows) {
  std::vector<std::byte> bytes(4);
  WeightSource source = source_of(DType::F32, std::int64_t{1} << 40, std::int64_t{1} << 40, bytes);
  source.row_stride = 0;
  source.col_stride = 0;
  EXPECT_FALSE(load_host_weight(source).ok());
}

}  // namespace
}  // namespace llorch::compute
