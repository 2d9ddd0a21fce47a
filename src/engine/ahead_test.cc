// Two steps in flight: the second one is submitted before the host knows what the first one found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>

#include "engine/core_harness.h"

namespace llorch::engine {
namespace {

class CoreAheadTest : public CoreTest {
 protected:
  static model::RunnerLimits ahead(std::int32_t num_blocks) {
    return {.num_blocks = num_blocks, .steps_in_flight = 2, .finds_argmax = true, .draws = true};
  }
  // Writes down what is computed ("rows@position") and what is told ("=id").
  void listen(std::vector<std::string>& events) {
    runner_->during_step = [&](const model::BatchPlan& plan) {
      events.push_back(fmt::format("{}@{}", plan.rows.size(), plan.rows[0].position));
    };
    sinks_.back()->heard = [&](TokenId id) { events.push_back(fmt::format("={}", id)); };
  }
};

TEST_F(CoreAheadTest, TheNextStepIsSubmittedBeforeTheLastIsTold) {
  for (const float temperature : {0.0F, 0.9F}) {
    make(ahead(100), {.step_tokens = 16});
    std::vector<std::string> events;
    const Plain plain = {
        .prompt = prompt(20), .max_tokens = 4, .sampling = {.temperature = temperature, .seed = 3}};
    const Record& record = add(plain);
    listen(events);
    run();
    const std::vector<TokenId> ids = plain.expected().first;
    EXPECT_EQ(record.ids, ids);
    const auto told = [&](std::size_t i) { return fmt::format("={}", ids[i]); };
    // Not behind a part of a prompt, and nothing after the last token.
    EXPECT_EQ(events, (std::vector<std::string>{"16@0", "4@16", "1@20", told(0), "1@21", told(1),
                                                "1@22", told(2), told(3)}));
  }
}

TEST_F(CoreAheadTest, AStopIsHeardOneStepLateAndNothingOfThatStepIsTold) {
  for (const bool is_late : {false, true}) {
    make(ahead(20));
    runner_->is_late = is_late;
    const Plain whole = {.prompt = prompt(14), .max_tokens = 40, .sampling = {.seed = 6}};
    Plain plain = whole;
    plain.end_ids = {whole.expected().first[9]};
    const Record& by_id = add(plain);
    run();
    EXPECT_EQ(by_id.end.reason, FinishReason::EndToken);
    EXPECT_EQ(by_id.ids, plain.expected().first);
    EXPECT_EQ(host_.stats.blocks_free, 20);
    const Record& by_sink = add(whole);
    sinks_.back()->verdict_at = 3;
    sinks_.back()->verdict = Verdict::Stop;
    const Record& other = add(whole);
    run();
    EXPECT_EQ(by_sink.end.reason, FinishReason::Stopped);
    EXPECT_EQ(by_sink.ids.size(), 3U);
    EXPECT_EQ(other.ids, whole.expected().first);
    EXPECT_EQ(host_.stats.blocks_free, 20);
    EXPECT_EQ(host_.num_in_flight, 0);
  }
}

TEST_F(CoreAheadTest, CancelledBetweenTwoStepsHearsNothingMoreAndLeavesItsBlocks) {
  make(ahead(20));
  runner_->is_late = true;
  const Plain plain = {.prompt = prompt(14), .max_tokens = 40, .sampling = {.seed = 6}};
  const Record& gone = add(plain);
  const Record& stays = add(plain);
  for (int i = 0; i < 3; ++i) core_->step(host_);
  const std::size_t heard = gone.ids.size();
  EXPECT_EQ(host_.num_in_flight, 1);
  core_->cancel(1);
  core_->step(host_);
  EXPECT_EQ(gone.end.reason, FinishReason::Cancelled);
  EXPECT_EQ(gone.ids.size(), heard);
  // Whoever gets its blocks writes after the step that still wrote into them.
  const Plain next = {.prompt = prompt(100, 9), .max_tokens = 9, .sampling = {.seed = 8}};
  const Record& heir = add(next);
  run();
  EXPECT_EQ(stays.ids, plain.expected().first);
  EXPECT_EQ(heir.ids, next.expected().first);
  EXPECT_EQ(host_.stats.blocks_free, 20);
  // All of them: the step behind is collected, and nobody is told.
  const Record& alone = add(plain);
  core_->step(host_);
  core_->step(host_);
  core_->cancel_all();
  EXPECT_FALSE(core_->idle()) << "a step is in flight";
  run();
  EXPECT_EQ(alone.finished, 1);
  EXPECT_EQ(host_.num_in_flight, 0);
}

TEST_F(CoreAheadTest, AnAbortedStepTakesTheOneBehindItAlong) {
  make(ahead(100), {.step_tokens = 16});
  const Plain plain = {.prompt = prompt(30), .max_tokens = 9, .sampling = {.seed = 8}};
  const Record& record = add(plain);
  const Record& other = add({.prompt = prompt(3), .max_tokens = 9, .sampling = {.seed = 9}});
  for (int i = 0; i < 3; ++i) core_->step(host_);
  ASSERT_EQ(host_.num_in_flight, 1);
  host_.abort_next = true;
  core_->step(host_);
  core_->step(host_);
  EXPECT_GT(host_.num_aborted, 0);
  host_.abort_next = false;
  run();
  EXPECT_EQ(record.ids, plain.expected().first);
  EXPECT_EQ(other.ids.size(), 9U);
}

TEST_F(CoreAheadTest, AFailedStepEndsWhatRunsAndTheEngineGoesOn) {
  make(ahead(20));
  const Plain plain = {.prompt = prompt(14), .max_tokens = 40, .sampling = {.seed = 6}};
  const Record& record = add(plain);
  for (int i = 0; i < 2; ++i) core_->step(host_);
  ASSERT_EQ(host_.num_in_flight, 1);
  runner_->during_step = [](const model::BatchPlan&) { throw std::bad_alloc(); };
  EXPECT_THROW(core_->step(host_), std::bad_alloc);
  runner_->during_step = [](const model::BatchPlan&) {};
  core_->fail_step(host_, Error{ErrorCode::OutOfMemory, "no memory"});
  EXPECT_EQ(record.end.reason, FinishReason::Failed);
  const Record& next = add(plain);
  run();
  EXPECT_EQ(next.ids, plain.expected().first);
  EXPECT_EQ(host_.stats.blocks_free, 20);
  EXPECT_EQ(host_.num_in_flight, 0);
  // Logits that are no numbers: the step behind was fed with any id, and is not told.
  runner_->change_logits = [](const model::BatchRow& row, std::span<float> logits) {
    if (row.position == 17) logits[13] = std::nanf("");
  };
  const Record& bad = add(plain);
  run();
  EXPECT_EQ(bad.end.reason, FinishReason::Failed);
  EXPECT_EQ(bad.ids.size(), 4U) << "of the rows at 13 to 16";
  EXPECT_EQ(host_.stats.blocks_free, 20);
}

TEST_F(CoreAheadTest, NobodyRunsAheadOfOneThatWaitsForTheHost) {
  make(ahead(100), {.step_tokens = 32});
  const Plain plain = {.prompt = prompt(5), .max_tokens = 12, .sampling = {.seed = 1}};
  const Plain waits = {
      .prompt = prompt(7), .max_tokens = 12, .sampling = {.seed = 2, .top_logprobs = 1}};
  const Record& first = add(plain);
  const Record& second = add(waits);
  run();
  EXPECT_EQ(runner_->num_overlapped, 0);
  EXPECT_EQ(first.ids, plain.expected().first);
  EXPECT_EQ(second.ids, waits.expected().first);
  EXPECT_EQ(host_.stats.steps, 12);
  // Whoever comes while two are in flight is let in with the next step but one.
  const Record& early = add(plain);
  for (int i = 0; i < 3; ++i) core_->step(host_);
  const Record& late = add(plain);
  for (int i = 0; i < 2; ++i) core_->step(host_);
  EXPECT_EQ(late.started, 1);
  run();
  EXPECT_EQ(early.ids, plain.expected().first);
  EXPECT_EQ(late.ids, plain.expected().first);
  EXPECT_GT(runner_->num_overlapped, 8);
}

// What the host has to say of logits is said while the layers run: nobody waits for it.
TEST_F(CoreAheadTest, WhereLogitsAreEditedNobodyWaitsForTheHost) {
  const auto generate = [&](std::int32_t logit_changes, bool is_late) {
    model::RunnerLimits limits = ahead(100);
    limits.logit_changes = logit_changes;
    make(limits, {.step_tokens = 32});
    runner_->is_late = is_late;
    const Record& free = add({.prompt = prompt(5), .max_tokens = 12, .sampling = {.seed = 1}});
    const Record& penalised = add({.prompt = prompt(7),
                                   .max_tokens = 12,
                                   .sampling = {.temperature = 0,
                                                .repetition_penalty = 1.5F,
                                                .presence_penalty = 0.5F,
                                                .logit_bias = {{3, 2.0F}, {49, 4.0F}}}});
    Record even;
    std::vector<TokenId> heard;
    GenerationRequest request =
        Plain{.prompt = prompt(9), .max_tokens = 12, .sampling = {.seed = 4}}.request();
    request.constraint = std::make_unique<EvenIds>(heard);
    core_->add(std::make_unique<Sequence>(77, std::move(request),
                                          std::make_shared<RecordingSink>(even), Clock::now()));
    run();
    EXPECT_EQ(heard, even.ids);
    EXPECT_EQ(host_.stats.blocks_free, 100);
    std::vector<TokenId> ids = free.ids;
    ids.insert(ids.end(), penalised.ids.begin(), penalised.ids.end());
    ids.insert(ids.end(), even.ids.begin(), even.ids.end());
    return ids;
  };
  const std::vector<TokenId> expected = generate(0, false);
  EXPECT_EQ(expected.size(), 36U);
  EXPECT_EQ(runner_->num_overlapped, 0) << "their logits are fetched";
  for (const bool is_late : {false, true}) {
    EXPECT_EQ(generate(1000, is_late), expected);
    EXPECT_EQ(runner_->num_edited, 12);
    EXPECT_EQ(runner_->num_overlapped, 11);
  }
  // Room for the constraint, which changes no single logit, and not for the penalties.
  EXPECT_EQ(generate(1, false), expected);
  EXPECT_EQ(runner_->num_edited, 12);
  EXPECT_EQ(runner_->num_overlapped, 0);
}

TEST_F(CoreAheadTest, AConstraintThatFailsEndsItsOwnGenerationAlone) {
  class Broken final : public TokenConstraint {
   public:
    void mask(std::span<float> /*logits*/) override {}
    void allow(std::span<std::uint32_t> ids) override {
      if (num_accepted_ == 3) throw std::bad_alloc();
      std::ranges::fill(ids, ~0U);
    }
    void accept(TokenId /*id*/) override { ++num_accepted_; }

   private:
    int num_accepted_ = 0;
  };
  model::RunnerLimits limits = ahead(100);
  limits.logit_changes = 100;
  make(limits);
  const Plain plain = {
      .prompt = prompt(5), .max_tokens = 9, .sampling = {.repetition_penalty = 1.2F, .seed = 1}};
  const Record& other = add(plain);
  Record record;
  GenerationRequest request = Plain{.prompt = prompt(9), .max_tokens = 9}.request();
  request.constraint = std::make_unique<Broken>();
  core_->add(std::make_unique<Sequence>(77, std::move(request),
                                        std::make_shared<RecordingSink>(record), Clock::now()));
  run();
  EXPECT_EQ(record.end.reason, FinishReason::Failed);
  EXPECT_EQ(record.ids.size(), 3U);
  EXPECT_EQ(other.ids, plain.expected().first);
  EXPECT_EQ(host_.stats.blocks_free, 100);
}

TEST_F(CoreAheadTest, ABiasThatIsGivenTwiceIsAddedTwice) {
  model::RunnerLimits limits = ahead(100);
  limits.logit_changes = 100;
  make(limits);
  const Plain plain = {.prompt = prompt(5),
                       .max_tokens = 9,
                       .sampling = {.logit_bias = {{1, 2.5F}, {7, 1.0F}, {1, 2.5F}}, .seed = 1}};
  const Record& record = add(plain);
  run();
  EXPECT_EQ(record.ids, plain.expected().first);
  EXPECT_EQ(runner_->num_edited, 0) << "by the host";
}

TEST_F(CoreAheadTest, ThePreemptedOneGoesOnWhereItWas) {
  make(ahead(6));
  run_the_preempted();
  EXPECT_GT(runner_->num_overlapped, 60);
}

}  // namespace
}  // namespace llorch::engine
