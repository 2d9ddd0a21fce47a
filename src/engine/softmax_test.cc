#include "engine/softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/test_logits.h"

namespace llorch::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t kVocab = 152064;

std::vector<Weight> weights_of(const std::vector<float>& logits, const Weighing& weighing) {
  std::vector<Weight> weights(logits.size());
  weighing.weigh(logits, weights);
  return weights;
}

TEST(Weighing, AgreesWithTheLibraryEverywhere) {
  std::vector<float> logits;
  for (int i = 0; i < 7300; ++i) logits.push_back(-0.0137F * static_cast<float>(i));
  logits.push_back(-kInfinity);
  for (const float temperature : {1.0F, 0.3F, 1.9F}) {
    const std::vector<Weight> weights = weights_of(logits, Weighing(0, temperature));
    EXPECT_EQ(weights[0], kHeaviest);
    EXPECT_EQ(weights.back(), 0U);
    for (std::size_t i = 0; i + 1 < logits.size(); ++i) {
      const double z = static_cast<double>(logits[i]) / static_cast<double>(temperature);
      const double expected = std::ldexp(std::exp(z), kWeightBits);
      // One rounding of z, the exponential's own, and what is cut off.
      EXPECT_NEAR(static_cast<double>(weights[i]), expected - 0.5,
                  0.5 + expected * (6e-7 - z * 1.2e-7))
          << z;
    }
  }
}

// Other bits on another machine would be other ids: the arithmetic is pinned.
TEST(Weighing, IsTheSameOnEveryMachine) {
  const Weighing weighing(3.25F, 0.7F);
  EXPECT_THAT(
      weights_of({3.25F, 3.0F, 1.5F, -2.0F, -9.75F, -14.5F, -18.0F}, weighing),
      testing::ElementsAre(1099511627776, 769298071552, 90253418496, 608122432, 9456, 10, 0));
  std::mt19937 random(3);
  std::vector<float> logits(4096);
  for (float& logit : logits) logit = static_cast<float>(random() >> 8) * 0x1.0p-19F - 32;
  std::uint64_t digest = 0;
  for (const Weight weight : weights_of(logits, Weighing(0, 0.9F)))
    digest = digest * 0x9e3779b97f4a7c15 + weight;
  EXPECT_EQ(digest, 8487894797513465341U);
}

TEST(SoftmaxKernels, AgreeBitForBit) {
  ASSERT_FALSE(softmax_kernels().empty());
  for (const float spread : {0.01F, 1.0F, 4.0F, 40.0F}) {
    std::vector<float> logits = random_logits(kVocab, 11, spread);
    for (std::size_t i = 0; i < logits.size(); i += 97) logits[i] = -kInfinity;
    std::fill_n(logits.begin() + 640, 128, -kInfinity);
    const float max = *std::ranges::max_element(logits);
    Weight expected = 0;
    for (const Weight weight : weights_of(logits, Weighing(max, 0.8F))) expected += weight;
    std::vector<float> maxima(kVocab / kGroup), expected_maxima;
    for (std::size_t i = 0; i < logits.size(); i += kGroup)
      expected_maxima.push_back(*std::max_element(&logits[i], &logits[i] + kGroup));
    for (const SoftmaxKernels& kernels : softmax_kernels()) {
      SCOPED_TRACE(kernels.name);
      EXPECT_TRUE(kernels.scan(logits, maxima.data()));
      EXPECT_EQ(maxima, expected_maxima);
      // A sum takes at most a thousand and some: its halves have 32 bits.
      Weight total = 0;
      for (std::size_t i = 0; i < logits.size(); i += 2 * kGroup) {
        total += kernels.sum(std::span(logits).subspan(i, 2 * kGroup), &maxima[i / kGroup], max,
                             1.44269504F / 0.8F);
      }
      EXPECT_EQ(total, expected);
      // Light groups are between what they weigh, cut off, and 1.062 times that.
      float light = 0;
      Weight exact = 0;
      for (std::size_t i = 0; i < logits.size(); i += 2 * kGroup) {
        exact += kernels.split(std::span(logits).subspan(i, 2 * kGroup), &maxima[i / kGroup], max,
                               1.44269504F / 0.8F, light);
      }
      WeightBounds bounds;
      bounds.add(exact, light, logits.size());
      EXPECT_LE(bounds.least, expected);
      EXPECT_GE(bounds.most, expected);
      EXPECT_EQ(spread < 2, light < 1.0F) << "only what is forbidden is light";
      const float sound = std::exchange(logits[70], kNan);
      EXPECT_FALSE(kernels.scan(logits, maxima.data()));
      logits[70] = sound;
    }
  }
}

// With the light groups bounded or not: a spike over a plain, a plain, and all between.
TEST(SoftmaxSums, ADrawFallsWhereTheExactSumsSay) {
  for (const std::size_t size : {1U, 65U, 1025U, 20000U}) {
    for (const float spike : {0.0F, 9.0F, 14.0F, 20.0F}) {
      std::vector<float> logits = random_logits(size, 4, 1.5F);
      logits[size / 2] = logits[size / 3] = spike;
      for (std::size_t i = 1; i < size; i += 11) logits[i] = -kInfinity;
      LogitScan scan(size);
      ASSERT_TRUE(scan.run(logits));
      const Weighing weighing(scan.max(), 0.9F);
      SoftmaxSums exact(size), hasty(size);
      exact.run(logits, scan, weighing);
      for (Weight part = 0; part < 500; ++part) {
        const auto target = [part](Weight total) { return total / 500 * part; };
        ASSERT_EQ(hasty.draw(logits, scan, weighing, target),
                  exact.find(logits, weighing, target(exact.total())))
            << size << ", " << spike << ", " << part;
      }
    }
  }
}

TEST(SoftmaxSums, FindWhereTheRunningSumPasses) {
  for (const std::size_t size : {1U, 63U, 64U, 1023U, 1025U, 2500U}) {
    const std::vector<float> logits = random_logits(size, 4, 5);
    LogitScan scan(size);
    ASSERT_TRUE(scan.run(logits));
    const Weighing weighing(scan.max(), 1.0F);
    SoftmaxSums sums(size);
    sums.run(logits, scan, weighing);
    Weight passed = 0;
    const std::vector<Weight> weights = weights_of(logits, weighing);
    for (std::size_t id = 0; id < size; ++id) {
      if (weights[id] == 0) continue;
      EXPECT_EQ(sums.find(logits, weighing, passed), id);
      passed += weights[id];
      EXPECT_EQ(sums.find(logits, weighing, passed - 1), id);
    }
    EXPECT_EQ(sums.total(), passed);
  }
}

}  // namespace
}  // namespace llorch::engine
