#include "worker/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::worker {
namespace {

using ::testing::HasSubstr;

constexpr CacheNeeds kNeeds{.block_bytes = 1000, .context = 100, .max_batch = 4};

TEST(CachePlan, HoldsEveryContextWhereThatIsLittle) {
  EXPECT_EQ(plan_cache_blocks(kNeeds, {}, 1'000'000'000).value(), 7 * 4);
}

TEST(CachePlan, LongContextsAreNotKeptForEverySequence) {
  CacheNeeds needs = kNeeds;
  needs.context = 131072;
  EXPECT_EQ(plan_cache_blocks(needs, {}, 1'000'000'000).value(), 8192) << "one whole context";
  needs.max_batch = 64;
  EXPECT_EQ(plan_cache_blocks(needs, {}, 1'000'000'000).value(), 64 * 256) << "4096 tokens each";
}

TEST(CachePlan, TakesAtMostAQuarterOfWhatIsFree) {
  EXPECT_EQ(plan_cache_blocks(kNeeds, {}, 40'000).value(), 10);
  EXPECT_EQ(plan_cache_blocks(kNeeds, {}, 3'000).error().code, ErrorCode::OutOfMemory);
}

TEST(CachePlan, AWishIsGrantedOrRefusedWithNumbers) {
  EXPECT_EQ(plan_cache_blocks(kNeeds, 5'999, 10'000).value(), 5);
  EXPECT_EQ(plan_cache_blocks(kNeeds, 500'000, 1'000'000).value(), 500) << "room for prefixes";
  const Result<std::int32_t> much = plan_cache_blocks(kNeeds, 20'000, 10'000);
  ASSERT_FALSE(much.ok());
  EXPECT_THAT(much.error().message, HasSubstr("20000"));
  const Result<std::int32_t> little = plan_cache_blocks(kNeeds, 999, 10'000);
  ASSERT_FALSE(little.ok());
  EXPECT_THAT(little.error().message, HasSubstr("--kv-memory 999"));
}

// A plan sees no free memory, only what would be taken.
TEST(CachePlan, WithoutALimitEverythingIsGranted) {
  CacheNeeds needs = kNeeds;
  needs.context = 131072;
  needs.block_bytes = 1 << 20;
  EXPECT_EQ(plan_cache_blocks(needs, {}, INT64_MAX).value(), 8192);
}

}  // namespace
}  // namespace llorch::worker
