#include "engine/sampler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/random.h"
#include "engine/test_logits.h"

namespace llorch::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDraws = 20000;
constexpr std::int32_t kVocab = 152064;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenId sample_id(Sampler& sampler, const std::vector<float>& logits, const SamplingParams& params,
                  std::int32_t position = 0) {
  Result<SampledToken> token =
      sampler.sample({.logits = logits, .params = params, .position = position});
  EXPECT_TRUE(token.ok()) << (token.ok() ? "" : token.error().message);
  return token.ok() ? token->id : -1;
}

// The distribution that request.h describes, sorted and summed without haste in double precision.
struct Reference {
  std::vector<double> probability;  // by id
  // How far the nearest cut of top-p or min-p was from falling elsewhere.
  double margin = 1;
};

Reference reference_distribution(std::vector<float> logits, const SamplingParams& params) {
  const std::size_t size = logits.size();
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<std::int64_t>(size)) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  std::erase_if(order, [&](std::size_t id) { return logits[id] == -kInfinity; });
  const double max = logits[order.front()];
  const auto weight = [&](std::size_t id) {
    return std::exp((static_cast<double>(logits[id]) - max) /
                    static_cast<double>(params.temperature));
  };
  const auto sum = [&] {
    double total = 0;
    for (const std::size_t id : order) total += weight(id);
    return total;
  };
  Reference result;
  if (params.top_p < 1) {
    const double total = sum();
    double passed = 0;
    std::size_t kept = 0;
    while (kept < order.size()) {
      passed += weight(order[kept++]) / total;
      result.margin = std::min(result.margin, std::abs(passed - static_cast<double>(params.top_p)));
      if (passed >= static_cast<double>(params.top_p)) break;
    }
    order.resize(kept);
  }
  std::erase_if(order, [&](std::size_t id) {
    const double over = weight(id) - static_cast<double>(params.min_p);
    if (over != 0 && params.min_p > 0) result.margin = std::min(result.margin, std::abs(over));
    return over < 0;
  });
  const double total = sum();
  result.probability.resize(size);
  for (const std::size_t id : order) result.probability[id] = weight(id) / total;
  return result;
}

TEST(Philox, AgreesWithThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

double uniform_draw(std::uint64_t seed, std::int32_t position) {
  return std::ldexp(static_cast<double>(draw_bits(seed, position)), -kDrawBits);
}

TEST(Philox, DrawsDifferByPositionAndBySeed) {
  std::vector<double> draws;
  for (std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
    for (std::int32_t position = 0; position < 1000; ++position) {
      draws.push_back(uniform_draw(seed, position));
      EXPECT_GE(draws.back(), 0);
      EXPECT_LT(draws.back(), 1);
    }
  }
  EXPECT_NEAR(std::accumulate(draws.begin(), draws.end(), 0.0) / 4000, 0.5, 0.02);
  std::ranges::sort(draws);
  EXPECT_EQ(std::ranges::adjacent_find(draws), draws.end());
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  for (const std::size_t size : {1U, 2U, 5U, 63U, 64U, 65U, 1000U}) {
    Sampler sampler(static_cast<std::int32_t>(size));
    std::vector<float> logits = random_logits(size, 3);
    for (std::size_t first = 0; first < size; first += 1 + size / 17) {
      std::vector<float> copy = logits;
      copy[first] = copy[size - 1] = 50;
      EXPECT_EQ(sample_id(sampler, copy, {.temperature = 0}), static_cast<TokenId>(first));
    }
  }
}

TEST(Sampler, GreedyIgnoresTheFiltersAndTheSeed) {
  const std::vector<float> logits = random_logits(500, 9);
  Sampler sampler(500);
  const TokenId best = sample_id(sampler, logits, {.temperature = 0});
  EXPECT_EQ(sample_id(sampler, logits,
                      {.temperature = 0, .top_k = 3, .top_p = 0.1F, .min_p = 0.9F, .seed = 77}),
            best);
}

// Every combination of filters against the reference: what may not be drawn never is, and what is
// drawn lies where the running sum of the reference passes the draw.
TEST(Sampler, DrawsFromExactlyTheReferenceDistribution) {
  int compared = 0;
  for (const std::size_t size : {1U, 7U, 64U, 200U, 3000U}) {
    Sampler sampler(static_cast<std::int32_t>(size));
    for (std::uint32_t round = 0; round < 300; ++round) {
      std::mt19937 random(round);
      const auto pick = [&](auto... values) {
        const std::array all = {values...};
        return all[random() % all.size()];
      };
      std::vector<float> logits = random_logits(size, round, pick(0.1F, 2.0F, 6.0F));
      if (round % 3 == 0) {  // Ties and forbidden ids.
        for (float& logit : logits) logit = std::round(logit);
        for (std::size_t i = 1; i < size; i += 3) logits[i] = -kInfinity;
      }
      const SamplingParams params = {.temperature = pick(1.0F, 0.05F, 0.7F, 2.0F),
                                     .top_k = pick(0L, 1L, 2L, 5L, 40L, 300L, 100000L),
                                     .top_p = pick(1.0F, 0.0F, 0.3F, 0.9F, 0.999F),
                                     .min_p = pick(0.0F, 0.05F, 0.5F, 1.0F),
                                     .seed = round};
      const Reference expected = reference_distribution(logits, params);
      if (expected.margin < 1e-5) continue;  // A cut within rounding.
      ++compared;
      for (std::int32_t position = 0; position < 20; ++position) {
        const TokenId id = sample_id(sampler, logits, params, position);
        ASSERT_GT(expected.probability[static_cast<std::size_t>(id)], 0)
            << fmt::format("size {} round {} id {}", size, round, id);
      }
      if (params.top_k == 0 && params.top_p == 1.0F && params.min_p == 0.0F) {
        for (std::int32_t position = 0; position < 50; ++position) {
          const double uniform = uniform_draw(round, position);
          double passed = 0;
          std::size_t id = 0;
          while (id + 1 < size && passed + expected.probability[id] <= uniform) {
            passed += expected.probability[id++];
          }
          const double distance =
              std::min(uniform - passed, passed + expected.probability[id] - uniform);
          if (distance < 1e-5) continue;
          ASSERT_EQ(sample_id(sampler, logits, params, position), static_cast<TokenId>(id));
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// Ids for a seed are a promise: they may change at the border of a version, and not unseen.
TEST(Sampler, IdsForASeedAreWhatTheyWere) {
  std::uint64_t digest = 0;
  for (const std::size_t size : {7U, 64U, 1000U, 5000U, 33000U}) {
    Sampler sampler(static_cast<std::int32_t>(size));
    for (const float spread : {0.2F, 1.0F, 3.0F, 9.0F}) {
      const std::vector<float> logits = random_logits(size, 17, spread);
      for (const float top_p : {1.0F, 0.999F, 0.9F, 0.5F, 0.0F}) {
        for (const float min_p : {0.0F, 0.02F}) {
          for (std::int32_t position = 0; position < 60; ++position) {
            const SamplingParams params = {.temperature = position % 2 == 0 ? 0.8F : 1.1F,
                                           .top_p = top_p,
                                           .min_p = min_p,
                                           .seed = 5};
            const TokenId id = sample_id(sampler, logits, params, position);
            digest = digest * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(id);
          }
        }
      }
    }
  }
  EXPECT_EQ(digest, 6080519734005999831U);
}

// Pearson's statistic of 20,000 draws; with fixed seeds it is a fixed number, and the limit is the
// 0.9999 quantile for the degrees of freedom (Wilson and Hilferty).
TEST(Sampler, FrequenciesFollowTheProbabilities) {
  const std::vector<SamplingParams> cases = {
      {.seed = 1},
      {.temperature = 0.5F, .seed = 2},
      {.temperature = 1.7F, .seed = 3},
      {.top_k = 7, .seed = 4},
      {.top_p = 0.8F, .seed = 5},
      {.min_p = 0.05F, .seed = 6},
      {.temperature = 1.3F, .top_k = 20, .top_p = 0.9F, .min_p = 0.02F, .seed = 7}};
  const std::vector<float> logits = random_logits(100, 5, 1.5F);
  Sampler sampler(100);
  for (const SamplingParams& params : cases) {
    const Reference expected = reference_distribution(logits, params);
    std::vector<double> observed(100);
    for (std::int32_t position = 0; position < kDraws; ++position) {
      ++observed[static_cast<std::size_t>(sample_id(sampler, logits, params, position))];
    }
    double statistic = 0, rest_expected = 0, rest_observed = 0;
    double freedom = -1;
    for (std::size_t id = 0; id < 100; ++id) {
      const double mean = expected.probability[id] * kDraws;
      if (mean < 10) {  // Rare ones together.
        rest_expected += mean;
        rest_observed += observed[id];
        continue;
      }
      statistic += (observed[id] - mean) * (observed[id] - mean) / mean;
      ++freedom;
    }
    if (rest_expected > 0) {
      statistic +=
          (rest_observed - rest_expected) * (rest_observed - rest_expected) / rest_expected;
      ++freedom;
    }
    ASSERT_GT(freedom, 2);
    const double spread = 2 / (9 * freedom);
    EXPECT_LT(statistic, freedom * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3))
        << "seed " << params.seed;
  }
}

TEST(Sampler, TheDrawDependsOnSeedAndPositionAlone) {
  const std::vector<float> logits = random_logits(2000, 1, 1);
  Sampler fresh(2000);
  Sampler used(2000);
  for (std::int32_t i = 0; i < 50; ++i)
    sample_id(used, random_logits(2000, 7), {.top_k = 99, .seed = 4});
  std::vector<TokenId> ids;
  for (std::int32_t position = 0; position < 50; ++position) {
    ids.push_back(sample_id(fresh, logits, {.seed = 11}, position));
    EXPECT_EQ(sample_id(used, logits, {.seed = 11}, position), ids.back());
  }
  int repeats = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) repeats += ids[i] == ids[i - 1] ? 1 : 0;
  EXPECT_LT(repeats, 10);
}

TEST(Sampler, AppliesBiasConstraintAndPenaltiesInThisOrder) {
  struct Recorder : TokenConstraint {
    void mask(std::span<float> logits) override {
      seen.assign(logits.begin(), logits.end());
      logits[0] = -kInfinity;
    }
    void allow(std::span<std::uint32_t> /*ids*/) override {}
    void accept(TokenId /*id*/) override {}
    std::vector<float> seen;
  } constraint;
  TokenCounts counts(std::vector<TokenId>{1, 2, 1}, 4);
  counts.add(2);
  counts.add(2);
  counts.add(3);
  const std::vector<float> logits = {9, 4, 4, -1, 2.0F, -8};
  SamplingParams params = {.temperature = 0,
                           .repetition_penalty = 2,
                           .frequency_penalty = 0.5F,
                           .presence_penalty = 0.25F,
                           .logit_bias = {{1, 2.0F}, {5, -1.0F}, {1, 0.5F}}};
  Sampler sampler(6);
  const auto choose = [&] {
    return sampler
        .sample({.logits = logits, .params = params, .counts = &counts, .constraint = &constraint})
        ->id;
  };
  // 0: forbidden. 1: (4 + 2.5) / 2 = 3.25. 2: 4 / 2 - (2 * 0.5 + 0.25) = 0.75. 4: 2.
  EXPECT_EQ(choose(), 1);
  EXPECT_EQ(constraint.seen, (std::vector<float>{9, 6.5F, 4, -1, 2, -9}));
  params.logit_bias = {{1, -1.5F}};  // 1: 1.25, and 4 stays 2.
  EXPECT_EQ(choose(), 4);
  params.logit_bias = {{4, -1.2F}, {1, -2.7F}};  // 4: 0.8. 1: 0.65. 2: 0.75.
  EXPECT_EQ(choose(), 4);
  params.frequency_penalty = 0.46F;  // 2: 0.83.
  EXPECT_EQ(choose(), 2);
  params.presence_penalty = 0.3F;  // 2: 0.78.
  EXPECT_EQ(choose(), 4);
  // A negative logit gets less likely too: 3 is -1 * 2 - (0.46 + 0.3) = -2.76 now.
  params.logit_bias = {{1, -50.0F}, {2, -50.0F}, {4, -4.7F}};  // 4: -2.7.
  EXPECT_EQ(choose(), 4);
  params.logit_bias.back().second = -4.8F;  // 4: -2.8.
  EXPECT_EQ(choose(), 3);
}

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  const std::vector<float> logits = random_logits(1000, 8);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  std::vector<TokenId> order(1000);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const auto logprob = [&](TokenId id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(total);
  };
  Sampler sampler(1000);
  for (const std::int32_t wanted : {0, 1, 5, 20, 1000, 5000}) {
    const SamplingParams params = {.temperature = 0.4F,
                                   .top_k = 2,
                                   .logit_bias = {{order[500], 100.0F}},
                                   .top_logprobs = wanted};
    const SampledToken token = *sampler.sample({.logits = logits, .params = params});
    EXPECT_EQ(token.id, order[500]);
    EXPECT_NEAR(static_cast<double>(token.logprob), logprob(order[500]), 2e-6);
    ASSERT_EQ(token.top.size(), static_cast<std::size_t>(std::min(wanted, 1000)));
    for (std::size_t i = 0; i < token.top.size(); ++i) {
      EXPECT_EQ(token.top[i].id, order[i]);
      EXPECT_NEAR(static_cast<double>(token.top[i].logprob), logprob(order[i]), 2e-6);
    }
  }
}

TEST(Sampler, NamesLogitsThatAreNotNumbers) {
  Sampler sampler(300);
  for (const float bad : {kNan, kInfinity}) {
    for (const std::size_t place : {0U, 150U, 299U}) {
      std::vector<float> logits = random_logits(300, 2);
      logits[place] = bad;
      for (const float temperature : {0.0F, 1.0F}) {
        const SamplingParams params = {.temperature = temperature};
        const Result<SampledToken> token =
            sampler.sample({.logits = logits, .params = params, .position = 12});
        ASSERT_FALSE(token.ok());
        EXPECT_EQ(token.error().code, ErrorCode::Internal);
        EXPECT_THAT(token.error().message,
                    testing::AllOf(testing::HasSubstr(fmt::format("token {}", place)),
                                   testing::HasSubstr("position 12"),
                                   testing::HasSubstr(bad == kInfinity ? "infinity" : "NaN")));
      }
    }
  }
}

TEST(Sampler, FailsWhereEverythingIsForbidden) {
  struct Nothing : TokenConstraint {
    void mask(std::span<float> logits) override { std::ranges::fill(logits, -kInfinity); }
    void allow(std::span<std::uint32_t> ids) override { std::ranges::fill(ids, 0U); }
    void accept(TokenId /*id*/) override {}
  } constraint;
  Sampler sampler(10);
  const SamplingParams params;
  EXPECT_FALSE(
      sampler.sample({.logits = std::vector<float>(10, -kInfinity), .params = params}).ok());
  const std::vector<float> logits = random_logits(10, 1);
  EXPECT_FALSE(
      sampler.sample({.logits = logits, .params = params, .constraint = &constraint}).ok());
}

TEST(Sampler, TemperatureSpreadsAndATinyOneIsGreedy) {
  const std::vector<float> logits = random_logits(100, 4, 1);
  Sampler sampler(100);
  const TokenId best = sample_id(sampler, logits, {.temperature = 0});
  std::vector<int> hits;
  for (const float temperature : {1e-42F, 1e-6F, 0.5F, 2.0F}) {
    hits.push_back(0);
    for (std::int32_t position = 0; position < 200; ++position) {
      hits.back() +=
          sample_id(sampler, logits, {.temperature = temperature}, position) == best ? 1 : 0;
    }
  }
  EXPECT_EQ(hits[0], 200);
  EXPECT_EQ(hits[1], 200);
  EXPECT_LT(hits[2], 200);
  EXPECT_LT(hits[3], hits[2]);
}

// Sums of 152,000 small numbers in single precision went wrong in the original project.
TEST(Sampler, ALargeFlatVocabularyIsDrawnEvenly) {
  Sampler sampler(kVocab);
  const std::vector<float> logits(kVocab, -3.0F);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_p = 0.5F}, SamplingParams{.top_k = 76032}}) {
    const bool half = params.top_p < 1 || params.top_k > 0;
    double mean = 0;
    TokenId largest = 0;
    for (std::int32_t position = 0; position < 40; ++position) {
      const TokenId id = sample_id(sampler, logits, params, position);
      mean += id / 40.0;
      largest = std::max(largest, id);
    }
    EXPECT_NEAR(mean, kVocab / (half ? 4.0 : 2.0), kVocab * 0.1);
    if (half) {
      EXPECT_LE(largest, kVocab / 2);
    }
  }
}

}  // namespace
}  // namespace llorch::engine
