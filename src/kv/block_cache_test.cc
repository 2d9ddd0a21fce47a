#include "kv/block_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace llorch::kv {
namespace {

constexpr std::int32_t kSize = 4;

std::vector<std::int32_t> counting(std::int32_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Takes and publishes the whole blocks of a text, as a sequence that computes it does.
std::vector<BlockId> fill(BlockCache& cache, std::span<const std::int32_t> tokens) {
  std::vector<BlockId> blocks;
  cache.find_prefix(tokens, blocks);
  cache.hold(blocks);
  while (blocks.size() * kSize + kSize <= tokens.size()) {
    const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
    const std::size_t start = blocks.size() * kSize;
    blocks.push_back(cache.publish(cache.take(), parent, tokens.subspan(start, kSize)));
  }
  return blocks;
}

TEST(BlockCache, FindsWhatWasPublishedShortOfTheWhole) {
  BlockCache cache({.num_blocks = 8, .block_tokens = kSize});
  const std::vector<std::int32_t> tokens = counting(12);
  const std::vector<BlockId> blocks = fill(cache, tokens);
  std::vector<BlockId> found;
  EXPECT_EQ(cache.find_prefix(tokens, found), 0);  // All held.
  EXPECT_EQ(found, (std::vector<BlockId>{blocks[0], blocks[1]}));
  cache.release(blocks);
  EXPECT_EQ(cache.num_free(), 8);
  EXPECT_EQ(cache.find_prefix(counting(13), found), 3);  // All idle.
  EXPECT_EQ(found, blocks);
  EXPECT_EQ(cache.find_prefix(counting(13, 1), found), 0);
  EXPECT_TRUE(found.empty());
}

TEST(BlockCache, TheSecondOfTwoEqualBlocksGivesWayToTheFirst) {
  BlockCache cache({.num_blocks = 4, .block_tokens = kSize});
  const std::vector<std::int32_t> tokens = counting(kSize);
  const BlockId first = cache.take();
  const BlockId second = cache.take();
  EXPECT_EQ(cache.publish(first, kNoBlock, tokens), first);
  EXPECT_EQ(cache.num_free(), 2);
  EXPECT_EQ(cache.publish(second, kNoBlock, tokens), first);
  EXPECT_EQ(cache.num_free(), 3);
  EXPECT_EQ(cache.num_held_once({&first, 1}), 0);
}

TEST(BlockCache, WithoutSharingNothingIsFound) {
  BlockCache cache({.num_blocks = 4, .block_tokens = kSize, .share = false});
  const std::vector<BlockId> blocks = fill(cache, counting(8));
  cache.release(blocks);
  std::vector<BlockId> found;
  cache.find_prefix(counting(9), found);
  EXPECT_TRUE(found.empty());
  EXPECT_EQ(cache.num_published(), 0);
}

TEST(BlockCache, GivesTheEndOfATextAwayBeforeItsStart) {
  BlockCache cache({.num_blocks = 3, .block_tokens = kSize});
  const std::vector<BlockId> blocks = fill(cache, counting(12));
  cache.release(blocks);
  EXPECT_EQ(cache.take(), blocks[2]);
  std::vector<BlockId> found;
  cache.find_prefix(counting(13), found);
  EXPECT_EQ(found, (std::vector<BlockId>{blocks[0], blocks[1]}));
}

// Random texts from few tokens, so that they share much: what is found must be what was written
// there, whichever blocks were given away in between. One run with a hash that tells little apart.
TEST(BlockCache, NeverFindsABlockWithOtherContent) {
  for (const PrefixIndex::Hash hash :
       {PrefixIndex::chained_hash, +[](std::uint64_t parent, std::span<const std::int32_t> tokens) {
          return (parent + static_cast<std::uint64_t>(tokens[0])) % 3;
        }}) {
    std::mt19937 random(1);
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
    BlockCache cache({.num_blocks = 24, .block_tokens = kSize, .hash = hash});
    std::map<BlockId, std::vector<std::int32_t>> content;  // All tokens up to the block's end.
    std::vector<std::vector<BlockId>> chains;
    std::int64_t hits = 0;
    for (int round = 0; round < 20000; ++round) {
      if (chains.size() == 4 || (!chains.empty() && below(3) == 0)) {
        std::swap(
            chains[static_cast<std::size_t>(below(static_cast<std::uint32_t>(chains.size())))],
            chains.back());
        cache.release(chains.back());
        chains.pop_back();
        continue;
      }
      std::vector<std::int32_t> text;
      for (std::int32_t left = 1 + below(20); left > 0; --left) text.push_back(below(6) / 5);
      std::vector<BlockId> blocks;
      cache.find_prefix(text, blocks);
      hits += static_cast<std::int64_t>(blocks.size());
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(
            content[blocks[i]],
            std::vector(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i + 1) * kSize));
      }
      cache.hold(blocks);
      while ((blocks.size() + 1) * kSize <= text.size()) {
        const BlockId own = cache.take();
        ASSERT_NE(own, kNoBlock);
        const std::size_t end = (blocks.size() + 1) * kSize;
        const BlockId parent = blocks.empty() ? kNoBlock : blocks.back();
        content[own] = {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end)};
        blocks.push_back(cache.publish(own, parent, std::span(text).subspan(end - kSize, kSize)));
        ASSERT_EQ(content[blocks.back()], content[own]);
      }
      chains.push_back(std::move(blocks));
    }
    EXPECT_GT(hits, 1000);
    for (const std::vector<BlockId>& chain : chains) cache.release(chain);
    EXPECT_EQ(cache.num_free(), cache.num_blocks());
  }
}

}  // namespace
}  // namespace llorch::kv
