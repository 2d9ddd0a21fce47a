// What two runs may differ by: compare() on traces that are written down here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/checkpoints.h"

namespace llorch::model {
namespace {

using ::testing::HasSubstr;

// Logits that differ by the roundings of another order of sums, each with its exact softmax.
TEST(CompareTraces, SoftmaxIsHeldAgainstItsOwnLogits) {
  Trace reference;
  reference.tensors["selected_logits"] = {{3}, {2.0F, 1.9F, -3.0F}};
  reference.tensors["softmax"] = {{3}, {0.52312873F, 0.47334645F, 0.00352481F}};
  Trace ours = reference;
  ours.tensors["selected_logits"].values = {2.00001F, 1.89999F, -3.0F};
  const double parts[] = {std::exp(double{2.00001F}), std::exp(double{1.89999F}), std::exp(-3.0)};
  const double sum = parts[0] + parts[1] + parts[2];
  for (std::size_t i = 0; i < 3; ++i)
    ours.tensors["softmax"].values[i] = static_cast<float>(parts[i] / sum);
  const auto judge = [&] { return compare(ours, reference)[10]; };
  EXPECT_TRUE(judge().passed) << judge().difference;
  // What is not the softmax of those logits fails, be it the reference's.
  ours.tensors["softmax"] = reference.tensors["softmax"];
  EXPECT_FALSE(judge().passed);
  ours.tensors.erase("softmax");
  EXPECT_EQ(judge().difference, "not recorded");
}

// A score of 714 in floats has steps of 0.00006.
TEST(CompareTraces, LargeNumbersMayDifferByAMillionthOfThemselves) {
  Trace reference;
  reference.tensors["scores.0"] = {{3}, {713.7804F, 0.5F, -std::numeric_limits<float>::infinity()}};
  Trace ours = reference;
  std::vector<float>& values = ours.tensors["scores.0"].values;
  const auto judge = [&] { return compare(ours, reference)[3]; };
  values[0] = 713.77997F;
  EXPECT_TRUE(judge().passed) << judge().difference;
  values[0] = 713.779F;
  EXPECT_THAT(judge().difference, HasSubstr("expected 713.7804 within 0.000713"));
  values[0] = 713.7804F;
  values[1] = 0.50015F;  // small numbers beside large ones are held to what small ones are
  EXPECT_THAT(judge().difference, HasSubstr("element 1 "));
  values[1] = 0.5F;
  values[2] = -1e30F;
  EXPECT_FALSE(judge().passed) << "masked on one side alone";
}

}  // namespace
}  // namespace llorch::model
