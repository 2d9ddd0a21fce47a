#include "fetch/chunk_table.h"

#include <gtest/gtest.h>

namespace llorch::fetch {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(ChunkTable, IsWholeWhenEveryChunkIsAccepted) {
  ChunkTable table(4);
  table.begin(10);
  ASSERT_EQ(table.count(), 3);
  EXPECT_EQ(table.size_of(2), 2);
  table.accept(1, "b");
  EXPECT_EQ(table.prefix(), 0);
  table.accept(0, "a");
  EXPECT_EQ(table.prefix(), 2);
  EXPECT_EQ(table.prefix_bytes(), 8);
  EXPECT_FALSE(table.is_whole());
  table.accept(2, "c");
  EXPECT_TRUE(table.is_whole());
  EXPECT_EQ(table.bytes_done(), 10);
  EXPECT_EQ(table.prefix_bytes(), 10);
}

TEST(ChunkTable, HashesWhatCameInPieces) {
  ChunkTable table(8);
  table.begin(8);
  table.add(0, bytes_of("abc"));
  EXPECT_EQ(table.bytes_done(), 3);
  EXPECT_FALSE(table.is_full(0));
  table.add(0, bytes_of("defgh"));
  EXPECT_TRUE(table.is_full(0));
  EXPECT_EQ(table.take_hash(0), base::sha256_hex("abcdefgh"));
}

TEST(ChunkTable, ADroppedChunkIsMissingAgainAndTheFrontEndsThere) {
  ChunkTable table(4);
  table.begin(12);
  for (std::size_t i = 0; i < 3; ++i) table.accept(i, "x");
  table.drop(1);
  EXPECT_EQ(table.prefix(), 1);
  EXPECT_EQ(table.bytes_done(), 8);
  table.accept(1, "y");
  EXPECT_EQ(table.prefix(), 3);
}

TEST(ChunkTable, GrowsUntilItsSizeIsKnown) {
  ChunkTable table(4);
  table.begin(std::nullopt);
  EXPECT_FALSE(table.is_whole());
  table.grow();
  table.add(0, bytes_of("ab"));
  table.set_size(2);
  EXPECT_TRUE(table.is_full(0));
  table.accept(0, table.take_hash(0));
  EXPECT_TRUE(table.is_whole());
  table.begin(0);
  EXPECT_TRUE(table.is_whole()) << "an empty file has no chunks";
}

TEST(ChunkTable, KnowsWhatCameDifferentlyTheSecondTime) {
  ChunkTable table(4);
  table.begin(8);
  table.accept(0, "a");
  table.accept(1, "b");
  table.begin_twice();
  EXPECT_EQ(table.bytes_done(), 0);
  table.accept(0, "a");
  table.accept(1, "c");
  EXPECT_EQ(table.count_differing(), 1);
}

}  // namespace
}  // namespace llorch::fetch
