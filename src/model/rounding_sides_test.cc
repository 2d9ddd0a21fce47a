// Where the reference takes the other run's number, and that it does so nowhere else.
#include "model/rounding_sides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::model {
namespace {

using compute::InputForm;
using compute::TensorView;
using testing::ElementsAre;

// Between 1 and the next half: what is below goes to 1, what is above to the other.
constexpr float kMiddle = 1 + 0x1p-11F;
constexpr float kBelow = kMiddle - 0x1p-23F;
constexpr float kAbove = kMiddle + 0x1p-23F;

class RoundingSidesTest : public testing::Test {
 protected:
  RoundingSidesTest() {
    other_.tensors["ffn_norm.3"] = {{2, 3}, {9, 9, 9, kAbove, 2.00001F, -1}};
    other_.tensors["attn_norm.0"] = {{2, 3}, {0, 0, 0, kMiddle + 2e-5F, 0, 0}};
    sides_.saw("ffn_norm.3", view_);
  }

  Trace other_;
  RoundingSides sides_{other_};
  std::vector<float> values_ = {7, 7, 7, kBelow, 2, -0.99F};
  TensorView view_{values_.data(), tensor::DType::F32, {2, 3}};
};

TEST_F(RoundingSidesTest, TakesWhatAgreesAndCountsWhatThatChanges) {
  // The second is rounded to 2 in both runs, the third is another number.
  EXPECT_THAT(sides_.take(InputForm::F16, view_, 1), ElementsAre(kAbove, 2.00001F, -0.99F));
  EXPECT_EQ(sides_.num_rounded(), 3);
  EXPECT_EQ(sides_.num_taken(), 1);
}

TEST_F(RoundingSidesTest, ADifferenceBeyondTheToleranceIsNotHidden) {
  EXPECT_THAT(sides_.take(InputForm::F16, view_, 0), ElementsAre(7, 7, 7));
  EXPECT_EQ(sides_.num_taken(), 0);
  sides_.saw("attn_norm.0", view_);  // the first rung's tolerance is a tenth of the others'
  EXPECT_THAT(sides_.take(InputForm::F16, view_, 1), ElementsAre(kBelow, 2, -0.99F));
}

TEST_F(RoundingSidesTest, WhatIsNotRoundedIsNotTouched) {
  EXPECT_THAT(sides_.take(InputForm::F32, view_, 1), ElementsAre(kBelow, 2, -0.99F));
  EXPECT_EQ(sides_.num_rounded(), 0);
}

TEST_F(RoundingSidesTest, KnowsTensorsByTheirMemoryUntilItStops) {
  std::vector<float> elsewhere = values_;
  const TensorView unknown(elsewhere.data(), tensor::DType::F32, {2, 3});
  EXPECT_THAT(sides_.take(InputForm::F16, unknown, 1), ElementsAre(kBelow, 2, -0.99F));
  sides_.saw("never recorded", view_);
  EXPECT_THAT(sides_.take(InputForm::F16, view_, 1), ElementsAre(kBelow, 2, -0.99F));
  sides_.saw("ffn_norm.3", view_);
  sides_.stop();
  EXPECT_THAT(sides_.take(InputForm::F16, view_, 1), ElementsAre(kBelow, 2, -0.99F));
}

TEST_F(RoundingSidesTest, AnotherShapeIsAnotherTensor) {
  EXPECT_THAT(sides_.take(InputForm::F16, view_.first_rows(1), 0), ElementsAre(7, 7, 7));
  EXPECT_EQ(sides_.num_rounded(), 0);
}

}  // namespace
}  // namespace llorch::model
