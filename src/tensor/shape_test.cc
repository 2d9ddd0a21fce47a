#include "tensor/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace llorch::tensor {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).elements(), 0);
  EXPECT_EQ((Shape{2, 3}).to_string(), "[2, 3]");
}

TEST(Shape, RefusesWhatAFileMayNotClaim) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> bad = {
      {-1}, {kHuge, 2}, {1LL << 32, 1LL << 32}, {kHuge, kHuge, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const auto& dims : bad) {
    const Result<Shape> shape = Shape::make(dims);
    ASSERT_FALSE(shape.ok());
    EXPECT_EQ(shape.error().code, ErrorCode::Corrupt);
  }
}

}  // namespace
}  // namespace llorch::tensor
