#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace llorch::tensor {
namespace {

#if defined(__FLT16_MAX__)  // the compiler's own half: gcc has one on every target, clang 14 not

TEST(Half, EveryPatternConvertsAsTheCompilerDoes) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float ours = half_to_float(half);
    const auto theirs = static_cast<float>(std::bit_cast<_Float16>(half));
    if (std::isnan(theirs)) {
      EXPECT_TRUE(std::isnan(ours)) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(theirs)) << bits;
    ASSERT_EQ(float_to_half(ours), half) << bits;
  }
}

TEST(Half, RoundsToNearestEvenAsTheCompilerDoes) {
  // Every half, its upper neighbour's midpoint, and one float step to each side of that midpoint.
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = half_to_float(static_cast<std::uint16_t>(bits));
    const float high =
        bits == 0x7BFF ? 65536.0F : half_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    for (const float value : {middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
      ASSERT_EQ(float_to_half(value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)))
          << value;
      ASSERT_EQ(float_to_half(-value), std::bit_cast<std::uint16_t>(static_cast<_Float16>(-value)));
    }
  }
  EXPECT_EQ(float_to_half(1e30F), 0x7C00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::numeric_limits<float>::quiet_NaN()))));
}

#endif

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16_to_float(0x3F80), 1.0F);
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3F80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // tie, even below
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // tie, even above
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    if (std::isnan(bfloat16_to_float(pattern))) continue;
    ASSERT_EQ(float_to_bfloat16(bfloat16_to_float(pattern)), pattern);
  }
}

}  // namespace
}  // namespace llorch::tensor
