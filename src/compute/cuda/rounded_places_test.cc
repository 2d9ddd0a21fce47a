// Which rows are there in 16 bits, and where: without a device.
#include "compute/cuda/rounded_places.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace llorch::compute::cuda {
namespace {

constexpr TensorCores kHopper = {.mma = true, .wgmma = true, .shared_bytes = 200 << 10};
constexpr std::int64_t kPlaceBytes = 2 * 128 * 256;  // up to 128 rows of 256

class RoundedPlacesTest : public testing::Test {
 protected:
  RoundedPlacesTest() { places_.take_room(room_.data(), kPlaceBytes); }

  TensorView rows(std::int64_t count, std::int64_t cols = 256, std::size_t first = 0) {
    return TensorView(memory_.data() + first, tensor::DType::F32, {count, cols});
  }
  std::int64_t offset(const RoundedTarget& target) const {
    return reinterpret_cast<const std::byte*>(target.data) - room_.data();
  }

  std::vector<std::byte> room_ = std::vector<std::byte>(2 * kPlaceBytes);
  std::vector<float> memory_ = std::vector<float>(200 * 320);
  RoundedPlaces places_{kHopper};
};

TEST_F(RoundedPlacesTest, TakeTurns) {
  EXPECT_EQ(offset(places_.next(rows(3))), kPlaceBytes);
  EXPECT_EQ(offset(places_.beside(rows(3))), 0);
  EXPECT_EQ(offset(places_.next(rows(3))), kPlaceBytes);
}

TEST_F(RoundedPlacesTest, KnowTheRowsThatWereRoundedLast) {
  EXPECT_FALSE(places_.find(rows(3)));
  const RoundedTarget target = places_.beside(rows(3));
  ASSERT_TRUE(places_.find(rows(3)));
  EXPECT_EQ(places_.find(rows(3))->data, target.data);
  EXPECT_FALSE(places_.find(rows(2))) << "fewer";
  EXPECT_FALSE(places_.find(rows(3, 128))) << "narrower";
  EXPECT_FALSE(places_.find(rows(3, 256, 256))) << "others";
  places_.forget();
  EXPECT_FALSE(places_.find(rows(3)));
  EXPECT_EQ(offset(places_.next(rows(3))), 0) << "a kernel may still read the other";
}

TEST_F(RoundedPlacesTest, LieInBlocksWhereManyAreMultiplied) {
  EXPECT_EQ(places_.next(rows(16)).block_bits, 0);
  EXPECT_EQ(places_.next(rows(17)).block_bits, 6);
  EXPECT_EQ(places_.next(rows(65)).block_bits, 7);
  EXPECT_EQ(places_.next(rows(1, 100)).stride, 128) << "whole tiles";
}

TEST_F(RoundedPlacesTest, TakeNoCopyThatNobodyCouldRead) {
  EXPECT_EQ(places_.beside(rows(1, 100)).data, nullptr) << "columns would have to be filled up";
  EXPECT_EQ(places_.beside(rows(1, 320)).data, nullptr) << "no room";
  EXPECT_EQ(places_.beside(rows(129)).data, nullptr) << "no room";
  RoundedPlaces without{TensorCores{}};
  without.take_room(room_.data(), kPlaceBytes);
  EXPECT_EQ(without.beside(rows(1)).data, nullptr) << "no product reads it";
  EXPECT_FALSE(places_.find(rows(129)));
}

}  // namespace
}  // namespace llorch::compute::cuda
