#include "compute/cpu/weight_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace llorch::compute {
namespace {

Buffer take(WeightArena& arena, std::int64_t bytes) {
  Result<Buffer> buffer = arena.take(bytes);
  EXPECT_TRUE(buffer.ok());
  return buffer.take();
}

void fill(const Buffer& buffer, int value) {
  std::memset(buffer.data(), value, static_cast<std::size_t>(buffer.bytes()));
}
bool holds(const Buffer& buffer, int value) {
  const auto* bytes = static_cast<const char*>(buffer.data());
  return std::all_of(bytes, bytes + buffer.bytes(), [&](char byte) { return byte == value; });
}

// Small and large ones, over the ends of pages and of chunks: each keeps what was written to it.
TEST(WeightArena, GivesEachItsOwnLines) {
  WeightArena arena;
  std::vector<Buffer> buffers;
  constexpr std::int64_t kMega = 1 << 20;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{64}, 3 * kMega,
                                   3 * kMega / 2, kMega / 2, 61 * kMega, 70 * kMega, kMega}) {
    buffers.push_back(take(arena, bytes));
    EXPECT_EQ(buffers.back().bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64, 0U);
    fill(buffers.back(), static_cast<int>(buffers.size()));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(holds(buffers[i], static_cast<int>(i + 1))) << i;
}

TEST(WeightArena, WhatItGaveOutlivesItAndItsNeighbours) {
  auto arena = std::make_unique<WeightArena>();
  Buffer first = take(*arena, 1000);
  Buffer second = take(*arena, 1000);
  fill(first, 1);
  fill(second, 2);
  arena.reset();
  first = Buffer();
  EXPECT_TRUE(holds(second, 2));
}

TEST(WeightArena, NamesTheBytesItCannotGive) {
  WeightArena arena;
  for (const std::int64_t bytes :
       {std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 60, std::int64_t{-1}}) {
    const auto buffer = arena.take(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code, ErrorCode::OutOfMemory);
    EXPECT_EQ(buffer.error().message,
              "cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  }
}

}  // namespace
}  // namespace llorch::compute
