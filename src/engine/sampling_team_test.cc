#include "engine/sampling_team.h"

#include <gtest/gtest.h>

#include "engine/core_harness.h"
#include "engine/test_logits.h"

namespace llorch::engine {
namespace {

TEST(SamplingTeam, AnyNumberOfThreadsGivesTheSameTokens) {
  constexpr std::int32_t kLarge = 20'000;
  Record record;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::vector<float>> logits;
  for (std::uint32_t i = 0; i < 24; ++i) {
    const Plain plain = {.prompt = {1, 2, 3},
                         .max_tokens = 5,
                         .sampling = {.temperature = i % 5 == 0 ? 0.0F : 0.9F,
                                      .top_k = i % 3 == 0 ? 40 : 0,
                                      .top_p = i % 4 == 0 ? 0.9F : 1.0F,
                                      .seed = i,
                                      .top_logprobs = i % 2}};
    sequences.push_back(make_sequence(i + 1, plain, std::make_shared<RecordingSink>(record)));
    logits.push_back(random_logits(kLarge, i));
  }
  std::vector<TokenId> expected;
  for (const std::int32_t threads : {1, 2, 5}) {
    SamplingTeam team(kLarge, threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<SampleJob> jobs;
      for (std::size_t i = 0; i < sequences.size(); ++i)
        jobs.push_back({sequences[i].get(), 2, logits[i]});
      team.sample(jobs);
      std::vector<TokenId> ids;
      for (const SampleJob& job : jobs) {
        ASSERT_TRUE(job.token && job.token->ok());
        ids.push_back((*job.token)->id);
        EXPECT_EQ((*job.token)->top.size(), (ids.size() - 1) % 2);
      }
      if (expected.empty()) expected = ids;
      ASSERT_EQ(ids, expected) << threads << " threads";
    }
  }
}

TEST(SamplingTeam, NothingToSampleIsFine) {
  SamplingTeam team(100, 3);
  team.sample({});
}

}  // namespace
}  // namespace llorch::engine
