#include "engine/core.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core_harness.h"

namespace llorch::engine {
namespace {

TEST_F(CoreTest, CountsWhatThePrefixCacheHolds) {
  make(20);
  const Plain plain = {.prompt = prompt(50), .max_tokens = 3, .sampling = {.seed = 5}};
  const Record& first = add(plain);
  run();
  const Record& second = add(plain);
  run();
  EXPECT_EQ(first.end.cached_tokens, 0);
  EXPECT_EQ(second.end.cached_tokens, 48);
  EXPECT_EQ(first.ids, second.ids);
  EXPECT_EQ(host_.stats.cached_tokens, 48);
  EXPECT_EQ(host_.stats.prompt_tokens, 52);
  EXPECT_EQ(host_.stats.output_tokens, 6);
  EXPECT_EQ(host_.stats.finished[static_cast<std::size_t>(FinishReason::MaxTokens)], 2);
  // A prompt that is all in the cache still computes its last token.
  const Record& third = add({.prompt = prompt(48), .max_tokens = 1});
  run();
  EXPECT_EQ(third.end.cached_tokens, 32);
  // Another salt finds nothing of it, and then its own.
  for (const std::int32_t cached : {0, 32}) {
    const Record& salted = add({.prompt = prompt(48), .max_tokens = 1, .salt = 9});
    run();
    EXPECT_EQ(salted.end.cached_tokens, cached);
  }
}

TEST_F(CoreTest, AScoredPromptIsComputedWhateverTheCacheHolds) {
  make(20);
  const Plain plain = {.prompt = prompt(50), .sampling = {.top_logprobs = 2}, .score_prompt = true};
  for (int round = 0; round < 2; ++round) {
    const Record& record = add(plain);
    run();
    EXPECT_EQ(record.end.reason, FinishReason::MaxTokens);
    EXPECT_EQ(record.end.cached_tokens, 0);
    EXPECT_EQ(record.scores.size(), 49U);
    plain.check_scores(record.scores);
  }
  // What it computed serves others.
  const Record& other = add({.prompt = prompt(50), .max_tokens = 1});
  run();
  EXPECT_EQ(other.end.cached_tokens, 48);
  // A prompt of one token has nothing to score.
  const Record& single =
      add({.prompt = {3}, .sampling = {.top_logprobs = 0}, .score_prompt = true});
  run();
  EXPECT_EQ(single.end.reason, FinishReason::MaxTokens);
  EXPECT_TRUE(single.scores.empty());
}

TEST_F(CoreTest, WhatAnAbortedStepWroteIsNotFound) {
  make(20);
  host_.abort_next = true;
  add({.prompt = prompt(50), .max_tokens = 3});
  core_->step(host_);
  core_->cancel(1);
  core_->step(host_);
  EXPECT_EQ(records_[0]->end.reason, FinishReason::Cancelled);
  host_.abort_next = false;
  const Plain plain = {.prompt = prompt(50), .max_tokens = 3};
  const Record& second = add(plain);
  run();
  EXPECT_EQ(second.end.cached_tokens, 0);
  EXPECT_EQ(second.ids, plain.expected().first);
}

TEST_F(CoreTest, AShortPromptAnswersWhileALongOneIsRead) {
  make(100, {.step_tokens = 16});
  const Record& patient = add({.prompt = prompt(600), .max_tokens = 1});
  core_->step(host_);
  const Record& quick = add({.prompt = prompt(8, 3), .max_tokens = 4});
  for (int i = 0; i < 4; ++i) core_->step(host_);
  EXPECT_EQ(quick.finished, 1);
  EXPECT_EQ(patient.finished, 0);
  run();
  EXPECT_EQ(patient.finished, 1);
}

TEST_F(CoreTest, ThePreemptedOneGoesOnWhereItWas) {
  make(6);
  const Record& preempted = run_the_preempted();
  EXPECT_EQ(preempted.end.preemptions, 1);
  EXPECT_EQ(host_.stats.preemptions, 1);
  EXPECT_EQ(preempted.started, 1);
}

TEST_F(CoreTest, WhatWasToldElsewhereGoesOnWithTheSameIds) {
  for (const bool is_greedy : {false, true}) {
    const Plain whole = {.prompt = prompt(21),
                         .max_tokens = 30,
                         .end_ids = {7},
                         .sampling = {.temperature = is_greedy ? 0.0F : 1.0F,
                                      .repetition_penalty = 1.2F,
                                      .frequency_penalty = 0.3F,
                                      .seed = 5}};
    const auto [expected, ends_early] = whole.expected();
    for (std::size_t cut = 1; cut < expected.size(); ++cut) {
      Plain rest = whole;
      rest.told.assign(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(cut));
      // Few blocks: it gives way to the others, and to itself comes back.
      make(6, {.step_tokens = 13});
      add({.prompt = prompt(30, 3), .max_tokens = 20});
      const Record& record = add(rest);
      add({.prompt = prompt(25, 9), .max_tokens = 20});
      run();
      EXPECT_EQ(record.ids, expected) << "cut at " << cut;
      EXPECT_EQ(record.end.reason, ends_early ? FinishReason::EndToken : FinishReason::MaxTokens);
      EXPECT_EQ(record.end.tokens_out, std::ssize(expected));
      EXPECT_EQ(record.end.prompt_tokens, 21);
      EXPECT_LE(record.end.cached_tokens, 21);
    }
  }
}

TEST_F(CoreTest, LogitsThatAreNotNumbersFailTheirOwnGenerationOnly) {
  make(20);
  const Plain good = {.prompt = prompt(5, 2), .max_tokens = 8};
  runner_->change_logits = [](const model::BatchRow& row, std::span<float> logits) {
    if (row.sequence == 0 && row.position == 7) logits[13] = std::nanf("");
  };
  const Record& bad = add({.prompt = prompt(5), .max_tokens = 8});
  const Record& other = add(good);
  run();
  EXPECT_EQ(bad.end.reason, FinishReason::Failed);
  EXPECT_EQ(bad.end.tokens_out, 3);
  ASSERT_TRUE(bad.end.error.has_value());
  EXPECT_NE(bad.end.error->message.find("NaN for token 13"), std::string::npos);
  EXPECT_EQ(other.ids, good.expected().first);
  EXPECT_EQ(host_.stats.blocks_free, 20);
}

TEST_F(CoreTest, TheSinkEndsItsGeneration) {
  make(20);
  const Plain plain = {.prompt = prompt(5), .max_tokens = 8};
  for (const auto& [verdict, reason] : {std::pair{Verdict::Stop, FinishReason::Stopped},
                                        std::pair{Verdict::Cancel, FinishReason::Cancelled}}) {
    const Record& record = add(plain);
    sinks_.back()->verdict_at = 2;
    sinks_.back()->verdict = verdict;
    run();
    EXPECT_EQ(record.end.reason, reason);
    EXPECT_EQ(record.end.tokens_out, 2);
  }
}

TEST_F(CoreTest, TheConstraintHearsEveryDeliveredTokenOnceEvenWhenPreempted) {
  make(6);
  add({.prompt = prompt(30), .max_tokens = 60});
  std::vector<TokenId> heard;
  Record record;
  GenerationRequest request = Plain{.prompt = prompt(28, 9), .max_tokens = 60}.request();
  request.constraint = std::make_unique<EvenIds>(heard);
  core_->add(std::make_unique<Sequence>(77, std::move(request),
                                        std::make_shared<RecordingSink>(record), Clock::now()));
  run();
  EXPECT_GT(record.end.preemptions, 0);
  EXPECT_FALSE(heard.empty());
  EXPECT_EQ(heard, record.ids);
  for (const TokenId id : record.ids) EXPECT_EQ(id % 2, 0);
}

TEST_F(CoreTest, ADeadlineEndsWhatRunsAndWhatWaits) {
  make(20, {.max_running = 1});
  const Clock::time_point deadline = clock_.now() + std::chrono::milliseconds(2);
  std::vector<Record> records(2);
  for (std::size_t i = 0; i < 2; ++i) {
    GenerationRequest request = Plain{.prompt = prompt(5), .max_tokens = 200}.request();
    request.deadline = deadline;
    core_->add(std::make_unique<Sequence>(
        i + 1, std::move(request), std::make_shared<RecordingSink>(records[i]), clock_.now()));
  }
  runner_->during_step = [&](const model::BatchPlan& plan) {
    if (plan.rows[0].position == 9) clock_.advance(std::chrono::milliseconds(2));
  };
  run();
  EXPECT_EQ(records[0].end.reason, FinishReason::TimedOut);
  EXPECT_EQ(records[0].end.tokens_out, 6);
  EXPECT_EQ(records[0].end.decode_ms, 2);
  EXPECT_EQ(records[1].end.reason, FinishReason::TimedOut);
  EXPECT_EQ(records[1].started, 0);
  EXPECT_EQ(host_.stats.blocks_free, 20);
}

TEST_F(CoreTest, CancelledDuringAStepHearsNoFurtherToken) {
  make(20);
  const Record& record = add({.prompt = prompt(5), .max_tokens = 8});
  core_->step(host_);
  EXPECT_EQ(record.ids.size(), 1U);
  host_.cancel_next = {1};
  core_->step(host_);
  EXPECT_EQ(record.end.reason, FinishReason::Cancelled);
  EXPECT_EQ(record.ids.size(), 1U);
  EXPECT_TRUE(core_->idle());
}

TEST_F(CoreTest, AsksForTheArgmaxWhereNothingElseCounts) {
  make({.num_blocks = 20, .finds_argmax = true});
  std::vector<std::pair<bool, bool>> wanted;
  runner_->during_step = [&](const model::BatchPlan& plan) {
    wanted.emplace_back(plan.rows.back().wants_argmax, plan.rows.back().wants_logits);
  };
  const auto asked = [&](const SamplingParams& sampling) {
    wanted.clear();
    const Plain plain = {.prompt = prompt(5), .max_tokens = 2, .sampling = sampling};
    const Record& record = add(plain);
    run();
    EXPECT_EQ(record.ids, plain.expected().first);
    return wanted.at(1);
  };
  const std::pair argmax{true, false}, logits{false, true};
  EXPECT_EQ(asked({.temperature = 0}), argmax);
  EXPECT_EQ(asked({.temperature = 0.5F}), logits);
  EXPECT_EQ(asked({.temperature = 0, .repetition_penalty = 1.1F}), logits);
  EXPECT_EQ(asked({.temperature = 0, .top_logprobs = 0}), logits);
  runner_->change_logits = [](const model::BatchRow&, std::span<float> row) {
    row[3] = std::nanf("");
  };
  const Record& bad = add({.prompt = prompt(5), .max_tokens = 2, .sampling = {.temperature = 0}});
  run();
  EXPECT_EQ(bad.end.reason, FinishReason::Failed);
}

TEST_F(CoreTest, LimitsOfTheRunnerBindTheOptions) {
  auto runner = std::make_unique<ScriptedRunner>(ScriptedRunner::Options{
      .limits = {.rows = 8, .logit_rows = 6, .sequences = 20, .num_blocks = 3},
      .context_length = 40});
  const EngineCore core(std::move(runner), {.max_running = 99, .step_tokens = 99});
  EXPECT_EQ(core.options().step_tokens, 8);
  EXPECT_EQ(core.options().max_running, 6);
  EXPECT_EQ(core.max_sequence_tokens(), 40);
}

}  // namespace
}  // namespace llorch::engine
