// The kernels' decoding and index arithmetic, run on the host.
#include "compute/cuda/quant.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "compute/cuda/indexing.cuh"
#include "compute/dequantize.h"
#include "compute/test_tensors.h"

namespace llorch::compute::cuda {
namespace {

using tensor::DType;
using test::Random;

// Any NaN equals any other: which payload survives a product is the machine's choice.
void expect_same(DType dtype, std::span<const std::byte> bytes) {
  const tensor::DTypeInfo& type = tensor::info(dtype);
  const std::size_t num_blocks = bytes.size() / static_cast<std::size_t>(type.block_bytes);
  std::vector<float> expected(num_blocks * static_cast<std::size_t>(type.block_elems));
  ASSERT_TRUE(dequantize(dtype, bytes, expected).ok());
  const auto* blocks = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const bool known = with_decoder(dtype, [&](auto decoder) {
    using Decoder = decltype(decoder);
    ASSERT_EQ(Decoder::kElems, type.block_elems);
    ASSERT_EQ(Decoder::kBytes, type.block_bytes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float found = Decoder::at(blocks + i / Decoder::kElems * Decoder::kBytes,
                                      static_cast<int>(i % Decoder::kElems));
      if (std::isnan(found) && std::isnan(expected[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected[i]))
          << type.name << " value " << i << ": " << found << ", expected " << expected[i];
    }
  });
  EXPECT_TRUE(known) << type.name;
}

std::vector<std::byte> random_bytes(std::int64_t count, Random& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits() & 0xFFU);
  return bytes;
}

TEST(CudaQuant, DecodesExactlyWhatDequantizeDecodes) {
  Random random(1);
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (!can_dequantize(type.dtype)) continue;
    expect_same(type.dtype, random_bytes(64 * type.block_bytes, random));
    expect_same(type.dtype, test::random_weight(type.dtype, 64 * type.block_elems, random));
  }
}

TEST(CudaQuant, DecodesEveryPatternOfTheSmallFloats) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const auto bytes = std::as_bytes(std::span(all));
  for (const DType dtype : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    expect_same(dtype, bytes);
  }
}

TEST(CudaQuant, KnowsTheTypesThatDequantizeKnows) {
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    EXPECT_EQ(with_decoder(type.dtype, [](auto) {}), can_dequantize(type.dtype)) << type.name;
  }
}

TEST(CudaIndexing, CacheRowsTileTheWholeCache) {
  const CacheShape cache{
      .blocks = 3, .block_stride = 2 * 4 * 5, .kv_heads = 2, .block_tokens = 4, .head_dim = 5};
  std::set<std::int64_t> offsets;
  for (std::int64_t block = 0; block < 3; ++block) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t token = 0; token < 4; ++token) {
        offsets.insert(cache_offset(cache, block, head, token));
      }
    }
  }
  EXPECT_EQ(offsets.size(), 24U);
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin(), 23 * 5);
  EXPECT_EQ(cache_offset(cache, 1, 1, 2), 40 + (4 + 2) * 5);
}

TEST(CudaIndexing, AWindowEndsAtTheRowItself) {
  EXPECT_EQ(first_visible(9, 0), 0);
  EXPECT_EQ(first_visible(9, 1), 9);
  EXPECT_EQ(first_visible(9, 4), 6);
  EXPECT_EQ(first_visible(9, 9), 1);
  EXPECT_EQ(first_visible(9, 10), 0);
  EXPECT_EQ(first_visible(9, 11), 0);
  EXPECT_EQ(first_visible(0, 1), 0);
}

TEST(CudaIndexing, RopePairsNeighboursOrHalves) {
  EXPECT_EQ(rope_pair(RopeStyle::Adjacent, 3, 8).first, 6);
  EXPECT_EQ(rope_pair(RopeStyle::Adjacent, 3, 8).second, 7);
  EXPECT_EQ(rope_pair(RopeStyle::Half, 3, 8).first, 3);
  EXPECT_EQ(rope_pair(RopeStyle::Half, 3, 8).second, 11);
}

TEST(CudaIndexing, CeilDivCountsTheLastPart) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(1, 8), 1);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
}

}  // namespace
}  // namespace llorch::compute::cuda
