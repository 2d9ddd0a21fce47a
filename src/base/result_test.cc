#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace llorch {
namespace {

Result<std::unique_ptr<int>> make(bool succeed) {
  if (!succeed) return Error{ErrorCode::NotFound, "no number"};
  return std::make_unique<int>(7);
}

TEST(Result, CarriesAValueOrAnError) {
  Result<std::unique_ptr<int>> good = make(true);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good.take(), 7);
  const auto bad = make(false);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::NotFound);
  EXPECT_EQ(bad.error().in("answer").message, "answer: no number");
}

TEST(ResultDeathTest, ReadingTheWrongSideIsABug) {
  EXPECT_DEATH({ auto copy = make(false).take(); }, "invariant broken.*no number");
  EXPECT_DEATH({ auto error = ok_status().error(); }, "holds a value");
}

}  // namespace
}  // namespace llorch
