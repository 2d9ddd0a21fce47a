#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace llorch::kv {
namespace {

TEST(BlockPool, GivesEveryBlockOnceAndThenNone) {
  BlockPool pool(5);
  std::set<BlockId> taken;
  for (int i = 0; i < 5; ++i) {
    const BlockPool::Taken one = pool.take();
    EXPECT_FALSE(one.was_kept);
    taken.insert(one.block);
  }
  EXPECT_EQ(taken, (std::set<BlockId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.take().block, kNoBlock);
}

TEST(BlockPool, ABlockIsFreeOnlyAfterItsLastRelease) {
  BlockPool pool(1);
  const BlockId block = pool.take().block;
  pool.hold(block);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.take().block, kNoBlock);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take().block, block);
}

TEST(BlockPool, PrefersEmptyBlocksToKeptOnes) {
  BlockPool pool(2);
  const BlockId kept = pool.take().block;
  const BlockId empty = pool.take().block;
  pool.keep(kept);
  pool.release(kept);
  pool.release(empty);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.take().block, empty);
  const BlockPool::Taken last = pool.take();
  EXPECT_EQ(last.block, kept);
  EXPECT_TRUE(last.was_kept);
  EXPECT_FALSE(pool.is_kept(kept));
}

TEST(BlockPool, ReturnsLeastRecentlyUsedBlockFirst) {
  BlockPool pool(4);
  for (int i = 0; i < 4; ++i) pool.keep(pool.take().block);
  for (const BlockId block : {2, 0, 3, 1}) pool.release(block);
  pool.hold(0);  // Used again: now the most recent.
  pool.release(0);
  pool.hold(3);  // Still in use.
  for (const BlockId expected : {2, 1, 0}) EXPECT_EQ(pool.take().block, expected);
  EXPECT_EQ(pool.take().block, kNoBlock);
}

TEST(BlockPoolDeathTest, RefusesToReleaseWhatNobodyHolds) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(0), "released more often");
  EXPECT_DEATH(pool.hold(0), "empty block");
  EXPECT_DEATH(pool.hold(2), "no such block");
}

}  // namespace
}  // namespace llorch::kv
