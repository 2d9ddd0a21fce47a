// What a product asks for ahead: its next one's weights, once they are known, and no more than
// pays.
#include "compute/cuda/weights_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace llorch::compute::cuda {
namespace {

class WeightsAheadTest : public testing::Test {
 protected:
  // Of halves: 64 outputs x 64 inputs are 8 KB.
  static ProductArgs product(const std::uint8_t* weight, int outputs, int tiles) {
    ProductArgs args;
    args.parts[0] = {.form = PackedForm::F16, .weight = weight, .outputs = outputs};
    args.num_parts = 1;
    args.tiles = tiles;
    return args;
  }
  static ProductArgs pair(const std::uint8_t* gate, const std::uint8_t* up, int outputs,
                          int tiles) {
    ProductArgs args = product(gate, outputs, tiles);
    args.parts[1] = args.parts[0];
    args.parts[1].weight = up;
    args.num_parts = 2;
    return args;
  }
  // One step of two products; what the first asks for.
  ProductArgs step(const ProductArgs& first, const ProductArgs& second,
                   AheadOf kind = AheadOf::BehindAttention, bool is_learning = true) {
    ahead_.begin_step(is_learning);
    ProductArgs args = first;
    ahead_.follow(args, kind);
    ProductArgs next = second;
    ahead_.follow(next, AheadOf::BehindAttention);
    EXPECT_EQ(next.ahead[0].bytes, 0) << "nothing is known to follow";
    ahead_.end_step();
    return args;
  }

  WeightsAhead ahead_;
  std::uint8_t out_[1], gate_[1], up_[1], other_[1];
};

TEST_F(WeightsAheadTest, IsLearntFromTheStepBefore) {
  const ProductArgs out = product(out_, 64, 2);
  EXPECT_EQ(step(out, pair(gate_, up_, 100, 3)).ahead[0].bytes, 0);
  const ProductArgs again = step(out, pair(gate_, up_, 100, 3));
  EXPECT_EQ(again.ahead[0].from, gate_);
  EXPECT_EQ(again.ahead[0].bytes, 2 * 3 * 8192) << "outputs in whole groups";
  EXPECT_EQ(again.ahead[1].from, up_);
  EXPECT_EQ(again.ahead[1].bytes, 2 * 3 * 8192);
  EXPECT_EQ(again.ahead[2].bytes, 0);
  EXPECT_EQ(step(out, product(other_, 64, 1)).ahead[0].from, gate_);
  EXPECT_EQ(step(out, product(other_, 64, 1)).ahead[0].from, other_) << "what came last counts";
}

TEST_F(WeightsAheadTest, ALargeProductIsAskedForInPart) {
  const ProductArgs out = product(out_, 64, 2);
  const ProductArgs large = pair(gate_, up_, 64 * 200, 100);
  step(out, large);
  for (const auto& [kind, most] : {std::pair{AheadOf::BehindAttention, std::int64_t{6} << 20},
                                   std::pair{AheadOf::Heads, std::int64_t{1} << 20},
                                   std::pair{AheadOf::Others, std::int64_t{0}}}) {
    const ProductArgs asking = step(out, large, kind);
    EXPECT_EQ(asking.ahead[0].bytes, most / 2);
    EXPECT_EQ(asking.ahead[1].bytes, most / 2);
    EXPECT_EQ(asking.ahead[0].bytes % 16, 0);
  }
}

TEST_F(WeightsAheadTest, OutsideOfStepsAndAfterALoadNothingIsKnown) {
  const ProductArgs out = product(out_, 64, 2);
  const ProductArgs next = product(gate_, 64, 2);
  step(out, next, AheadOf::BehindAttention, false);
  EXPECT_EQ(step(out, next).ahead[0].bytes, 0) << "a step that is not like others teaches nothing";
  EXPECT_EQ(step(out, next, AheadOf::BehindAttention, false).ahead[0].bytes, 0);
  EXPECT_GT(step(out, next).ahead[0].bytes, 0);
  ahead_.forget();
  EXPECT_EQ(step(out, next).ahead[0].bytes, 0);
}

}  // namespace
}  // namespace llorch::compute::cuda
