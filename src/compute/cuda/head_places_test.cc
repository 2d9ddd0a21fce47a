// Which projections can place their heads by themselves: decided from shapes, without a device.
#include "compute/cuda/head_places.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace llorch::compute::cuda {
namespace {

using tensor::DType;

constexpr std::int64_t kRows = 3;

// Four heads of queries, two of keys; nothing is read.
class HeadPlacesOf {
 public:
  explicit HeadPlacesOf(std::int64_t head_dim, DType cache = DType::F16) : head_dim_(head_dim) {
    const std::int64_t width = 8 * head_dim;
    memory_.resize(static_cast<std::size_t>(kRows * width));
    qkv_ = TensorView(memory_.data(), DType::F32, {kRows, width});
    const std::array<std::int64_t, 3> heads = {4, 2, 2};
    std::int64_t column = 0;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      weights_[i].rows = heads[i] * head_dim;
      targets_[i] = {
          .weight = &weights_[i], .bias = {}, .out = qkv_.columns(column, weights_[i].rows)};
      column += weights_[i].rows;
    }
    const auto part = [&](std::size_t i) { return targets_[i].out.split_heads(heads[i]); };
    const TensorView keys(memory_.data(), cache, {5, 2, 16, head_dim});
    args.product = {.x = qkv_, .norm = {}, .normed = qkv_, .targets = targets_};
    args.heads = {.q = part(0),
                  .k = part(1),
                  .v = part(2),
                  .q_norm = {},
                  .k_norm = {},
                  .angles = turns(head_dim),
                  .slots = TensorView(memory_.data(), DType::I32, {kRows}),
                  .cache = {keys, keys}};
  }
  TensorView turns(std::int64_t values) {
    return TensorView(memory_.data(), DType::F32, {kRows, values});
  }
  TensorView norm() { return TensorView(memory_.data(), DType::F32, {head_dim_}); }
  std::span<LinearTarget> targets() { return targets_; }

  ProjectHeadsArgs args;

 private:
  std::int64_t head_dim_;
  std::vector<float> memory_;
  TensorView qkv_;
  std::array<Weight, 3> weights_;
  std::array<LinearTarget, 3> targets_;
};

TEST(HeadPlaces, SayWhereQueriesEndAndWhichValuesTurnTogether) {
  HeadPlacesOf half(64);
  const std::optional<HeadPlaces> places = find_head_places(half.args);
  ASSERT_TRUE(places);
  EXPECT_EQ(places->q_outputs, 256);
  EXPECT_EQ(places->kv_outputs, 128);
  EXPECT_EQ(places->head_dim, 64);
  EXPECT_EQ(places->key_shape.block_tokens, 16);
  EXPECT_TRUE(places->has_halves);
  EXPECT_TRUE(places->turns_halves);
  half.args.heads.style = RopeStyle::Adjacent;
  EXPECT_FALSE(find_head_places(half.args)->turns_halves);
  half.args.heads.style = RopeStyle::Half;
  half.args.heads.angles = {};
  EXPECT_FALSE(find_head_places(half.args)->turns_halves);
  EXPECT_FALSE(find_head_places(HeadPlacesOf(64, DType::F32).args)->has_halves);
}

TEST(HeadPlaces, AreLeftToAnotherKernelWhereTheyNeedMore) {
  EXPECT_FALSE(find_head_places(HeadPlacesOf(80).args)) << "heads of five tiles";
  EXPECT_FALSE(find_head_places(HeadPlacesOf(64, DType::Q8_0).args)) << "values rounded together";
  HeadPlacesOf normed(64);
  normed.args.heads.k_norm = normed.norm();
  EXPECT_FALSE(find_head_places(normed.args));
  HeadPlacesOf partial(64);
  partial.args.heads.angles = partial.turns(32);
  EXPECT_FALSE(find_head_places(partial.args));
  HeadPlacesOf added(64);
  added.targets()[1].accumulate = true;
  EXPECT_FALSE(find_head_places(added.args));
}

}  // namespace
}  // namespace llorch::compute::cuda
