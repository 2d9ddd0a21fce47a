#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace llorch::engine {
namespace {

constexpr std::int32_t kBlock = 16;

SequenceView decoding(std::int32_t tokens) {
  return {.tokens_known = tokens,
          .tokens_computed = tokens - 1,
          .blocks_held = blocks_for(tokens - 1, kBlock),
          .blocks_alone = blocks_for(tokens - 1, kBlock)};
}

SequenceView fresh(std::int32_t tokens) {
  return {.tokens_known = tokens};
}

struct Case {
  std::vector<SequenceView> running, waiting;
  std::int32_t blocks_total = 1000;
  std::int32_t step_tokens = 64;
  std::int32_t logit_rows = 16;
  std::int32_t max_running = 16;

  StepPlan plan() const {
    std::int32_t held = 0;
    for (const SequenceView& sequence : running) held += sequence.blocks_held;
    return plan_step({.running = running,
                      .waiting = waiting,
                      .blocks_total = blocks_total,
                      .blocks_free = blocks_total - held,
                      .block_tokens = kBlock,
                      .step_tokens = step_tokens,
                      .logit_rows = logit_rows,
                      .max_running = max_running});
  }
};

using Rows = std::vector<std::int32_t>;

TEST(PlanStep, DecodesAllAndGivesTheRestToPrefills) {
  const StepPlan plan = Case{.running = {decoding(100), fresh(500), decoding(7)}}.plan();
  EXPECT_EQ(plan.rows, (Rows{1, 62, 1}));
}

TEST(PlanStep, AShortPromptIsNotStuckBehindALongOne) {
  const StepPlan plan = Case{.waiting = {fresh(5000), fresh(10), fresh(5000)}}.plan();
  EXPECT_EQ(plan.num_admitted, 3);
  EXPECT_EQ(plan.rows, (Rows{27, 10, 27}));
}

TEST(PlanStep, AdmitsInOrderUpToTheLimit) {
  Case input = {.running = {decoding(9)}, .waiting = std::vector(5, fresh(3)), .max_running = 4};
  EXPECT_EQ(input.plan().num_admitted, 3);
  EXPECT_EQ(input.plan().rows, (Rows{1, 3, 3, 3}));
}

TEST(PlanStep, NobodyOvertakesOneThatDoesNotFit) {
  Case input = {.running = {decoding(32)}, .waiting = {fresh(200), fresh(1)}, .blocks_total = 12};
  EXPECT_EQ(input.plan().num_admitted, 0);
  input.waiting = {fresh(1), fresh(200)};
  EXPECT_EQ(input.plan().num_admitted, 1);
}

TEST(PlanStep, AdmitsByBlocksReallyNeeded) {
  // 10 blocks: the running one has 2 and a block to grow into, so 7 are left.
  Case input = {.running = {decoding(32)}, .waiting = {fresh(7 * kBlock)}, .blocks_total = 10};
  EXPECT_EQ(input.plan().num_admitted, 1);
  input.waiting = {fresh(7 * kBlock + 1)};
  EXPECT_EQ(input.plan().num_admitted, 0);
  // Three blocks of it are in the cache and held by others: they cost nothing.
  input.waiting = {{.tokens_known = 10 * kBlock, .tokens_computed = 3 * kBlock, .blocks_held = 3}};
  EXPECT_EQ(input.plan().num_admitted, 1);
  // Idle ones are part of what is free.
  input.waiting[0].blocks_alone = 1;
  EXPECT_EQ(input.plan().num_admitted, 0);
  // What a running prefill still needs is not there for others.
  input.running = {fresh(5 * kBlock)};
  input.waiting = {fresh(4 * kBlock)};
  EXPECT_EQ(input.plan().num_admitted, 1);
  input.waiting = {fresh(4 * kBlock + 1)};
  EXPECT_EQ(input.plan().num_admitted, 0);
}

TEST(PlanStep, WhoIsAloneMayUseEverything) {
  Case input = {.waiting = {fresh(10 * kBlock)}, .blocks_total = 10, .step_tokens = 500};
  EXPECT_EQ(input.plan().num_admitted, 1);
  EXPECT_EQ(input.plan().rows, (Rows{10 * kBlock}));
}

TEST(PlanStep, TheYoungestGivesWay) {
  // Each needs a new block and one is free.
  Case input = {.running = {decoding(33), decoding(33), decoding(33)},
                .waiting = {fresh(1)},
                .blocks_total = 7};
  const StepPlan plan = input.plan();
  EXPECT_EQ(plan.num_preempted, 1);
  EXPECT_EQ(plan.num_admitted, 0);
  EXPECT_EQ(plan.rows, (Rows{1, 1}));
}

TEST(PlanStep, SharedBlocksAreNotCountedAsFreedTwice) {
  Case input = {.running = {decoding(33), decoding(33), decoding(33)}, .blocks_total = 6};
  input.running[2].blocks_alone = 0;
  EXPECT_EQ(input.plan().num_preempted, 2);  // The second frees two, enough for the first.
}

TEST(PlanStep, TheLastOneLeftHasAllTheOthersHeld) {
  // Two share the same two blocks, which no single preemption frees; the oldest needs one.
  std::vector<SequenceView> running(3, decoding(33));
  running[1].blocks_alone = running[2].blocks_alone = 0;
  const StepPlan plan = plan_step({.running = running,
                                   .waiting = {},
                                   .blocks_total = 4,
                                   .blocks_free = 0,
                                   .block_tokens = kBlock,
                                   .step_tokens = 64,
                                   .logit_rows = 3,
                                   .max_running = 3});
  EXPECT_EQ(plan.num_preempted, 2);
  EXPECT_EQ(plan.rows, (Rows{1}));
}

TEST(PlanStep, ChunksShrinkToTheBlocksThatAreLeft) {
  Case input = {.running = {decoding(33), fresh(300)}, .blocks_total = 5};
  EXPECT_EQ(input.plan().rows, (Rows{1, 2 * kBlock}));
}

TEST(PlanStep, WhoScoresGetsTheLogitRowsThatAreLeft) {
  const auto scoring = [](std::int32_t tokens) {
    return SequenceView{.tokens_known = tokens, .scores = true};
  };
  Case input = {.running = {decoding(9), scoring(100), fresh(100)}, .logit_rows = 12};
  EXPECT_EQ(input.plan().rows, (Rows{1, 10, 53})) << "others are not held back";
  input.running = {scoring(100), scoring(4), decoding(9)};
  EXPECT_EQ(input.plan().rows, (Rows{7, 4, 1}));
  input.logit_rows = 3;
  input.max_running = 3;
  EXPECT_EQ(input.plan().rows, (Rows{1, 1, 1})) << "nobody stands still";
}

TEST(PlanStep, KeepsItsPromisesForRandomInput) {
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](std::int32_t low, std::int32_t high) {
      return low + static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(high - low + 1));
    };
    Case input;
    input.blocks_total = between(4, 60);
    input.max_running = between(1, 8);
    input.step_tokens = between(input.max_running, 80);
    input.logit_rows = between(input.max_running, 30);
    std::int32_t left = input.blocks_total;
    const std::int32_t most = input.blocks_total * kBlock;
    for (std::int32_t i = between(0, input.max_running); i > 0 && left > 0; --i) {
      SequenceView sequence;
      sequence.tokens_known = between(1, most);
      sequence.tokens_computed = std::min(
          between(0, left * kBlock), sequence.tokens_known - between(1, sequence.tokens_known));
      sequence.blocks_held =
          std::min(left, blocks_for(sequence.tokens_computed, kBlock) + between(0, 5) / 5);
      sequence.blocks_alone = sequence.blocks_held;
      sequence.scores = between(0, 3) == 0;
      left -= sequence.blocks_held;
      input.running.push_back(sequence);
    }
    for (std::int32_t i = between(0, 4); i > 0; --i)
      input.waiting.push_back(fresh(between(1, most)));
    const StepPlan plan = input.plan();
    SCOPED_TRACE(seed);

    const std::size_t staying = input.running.size() - static_cast<std::size_t>(plan.num_preempted);
    std::vector<SequenceView> step(input.running.begin(),
                                   input.running.begin() + static_cast<std::ptrdiff_t>(staying));
    step.insert(step.end(), input.waiting.begin(), input.waiting.begin() + plan.num_admitted);
    ASSERT_EQ(plan.rows.size(), step.size());
    ASSERT_LE(step.size(), static_cast<std::size_t>(input.max_running));
    ASSERT_LE(std::accumulate(plan.rows.begin(), plan.rows.end(), 0), input.step_tokens);
    std::int32_t blocks = 0;
    for (std::size_t i = 0; i < step.size(); ++i) {
      ASSERT_GE(plan.rows[i], 1);
      ASSERT_LE(plan.rows[i], step[i].tokens_known - step[i].tokens_computed);
      blocks +=
          std::max(step[i].blocks_held, blocks_for(step[i].tokens_computed + plan.rows[i], kBlock));
    }
    ASSERT_LE(blocks, input.blocks_total);
    if (!input.running.empty()) {
      ASSERT_GE(staying, 1U);  // The oldest stays.
    } else if (!input.waiting.empty()) {
      ASSERT_GE(plan.num_admitted, 1);
    }
    if (plan.num_preempted > 0) {
      ASSERT_EQ(plan.num_admitted, 0);
      // It was needed: with one more, the rows would not have fitted.
      std::int32_t needed = 0;
      for (std::size_t i = 0; i < input.running.size(); ++i) {
        const SequenceView& s = input.running[i];
        needed +=
            i <= staying ? std::max(s.blocks_held, blocks_for(s.tokens_computed + 1, kBlock)) : 0;
      }
      ASSERT_GT(needed, input.blocks_total);
    }
  }
}

}  // namespace
}  // namespace llorch::engine
