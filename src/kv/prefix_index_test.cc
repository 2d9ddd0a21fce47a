#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace llorch::kv {
namespace {

using Tokens = std::array<std::int32_t, 4>;

std::uint64_t same_hash(std::uint64_t /*parent*/, std::span<const std::int32_t> /*tokens*/) {
  return 7;
}

TEST(PrefixIndex, FindsABlockByItsTokensAndParent) {
  PrefixIndex index(8, 4);
  const Tokens tokens = {1, 2, 3, 4};
  EXPECT_EQ(index.find(kNoBlock, tokens), kNoBlock);
  index.insert(5, kNoBlock, tokens);
  index.insert(2, 5, tokens);
  EXPECT_EQ(index.find(kNoBlock, tokens), 5);
  EXPECT_EQ(index.find(5, tokens), 2);
  EXPECT_EQ(index.find(2, tokens), kNoBlock);
  EXPECT_EQ(index.find(kNoBlock, Tokens{1, 2, 3, 5}), kNoBlock);
  EXPECT_EQ(index.size(), 2);
}

// Also where the hash does not tell them apart.
TEST(PrefixIndex, TextsOfDifferentSaltsShareNothing) {
  for (const PrefixIndex::Hash hash : {PrefixIndex::chained_hash, same_hash}) {
    PrefixIndex index(8, 4, hash);
    const Tokens tokens = {1, 2, 3, 4};
    index.insert(0, kNoBlock, tokens);
    index.insert(1, kNoBlock, tokens, 5);
    index.insert(2, 1, tokens, 5);
    EXPECT_EQ(index.find(kNoBlock, tokens), 0);
    EXPECT_EQ(index.find(kNoBlock, tokens, 5), 1);
    EXPECT_EQ(index.find(1, tokens, 5), 2);
    EXPECT_EQ(index.find(kNoBlock, tokens, 6), kNoBlock);
    EXPECT_EQ(index.find(0, tokens), kNoBlock);
  }
}

TEST(PrefixIndex, EqualHashesNeverMakeContentsEqual) {
  PrefixIndex index(16, 4, same_hash);
  for (std::int32_t block = 0; block < 8; ++block) {
    index.insert(block, kNoBlock, Tokens{block, 0, 0, 0});
    index.insert(block + 8, block, Tokens{9, 9, 9, 9});  // Differ in the parent alone.
  }
  for (std::int32_t block = 0; block < 8; ++block) {
    EXPECT_EQ(index.find(kNoBlock, Tokens{block, 0, 0, 0}), block);
    EXPECT_EQ(index.find(block, Tokens{9, 9, 9, 9}), block + 8);
  }
  EXPECT_EQ(index.find(kNoBlock, Tokens{9, 9, 9, 9}), kNoBlock);
  index.erase(11);  // From the middle of the one bucket.
  EXPECT_EQ(index.find(3, Tokens{9, 9, 9, 9}), kNoBlock);
  EXPECT_EQ(index.find(4, Tokens{9, 9, 9, 9}), 12);
}

TEST(PrefixIndex, AnErasedBlockCanComeBackWithOtherContent) {
  PrefixIndex index(2, 4);
  index.insert(0, kNoBlock, Tokens{1, 1, 1, 1});
  index.erase(0);
  EXPECT_EQ(index.find(kNoBlock, Tokens{1, 1, 1, 1}), kNoBlock);
  index.insert(0, kNoBlock, Tokens{2, 2, 2, 2});
  EXPECT_EQ(index.find(kNoBlock, Tokens{2, 2, 2, 2}), 0);
}

TEST(PrefixIndex, HashDependsOnEveryTokenAndOnTheParent) {
  std::set<std::uint64_t> seen;
  for (const std::uint64_t parent : {0ULL, 1ULL}) {
    seen.insert(PrefixIndex::chained_hash(parent, Tokens{0, 0, 0, 0}));
    for (std::size_t place = 0; place < 4; ++place) {
      for (const std::int32_t value : {1, 2, 65536, -1}) {
        Tokens tokens = {};
        tokens[place] = value;
        seen.insert(PrefixIndex::chained_hash(parent, tokens));
      }
    }
  }
  EXPECT_EQ(seen.size(), 2U * (1 + 4 * 4));
}

TEST(PrefixIndexDeathTest, RefusesToLoseAParentBeforeItsChildren) {
  PrefixIndex index(4, 4);
  index.insert(0, kNoBlock, Tokens{1, 1, 1, 1});
  index.insert(1, 0, Tokens{2, 2, 2, 2});
  EXPECT_DEATH(index.erase(0), "before its children");
  EXPECT_DEATH((void)index.find(3, Tokens{}), "parent is not in the index");
  EXPECT_DEATH((void)index.find(kNoBlock, std::array{1, 2}), "whole blocks");
}

}  // namespace
}  // namespace llorch::kv
