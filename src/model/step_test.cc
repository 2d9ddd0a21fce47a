// What a step asks of its backend and in which order; steps whose results come late.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "model/broken_backend.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

// A backend that hears of everything a step does.
class HeardStep : public testing::Test {
 protected:
  HeardStep() : backend_(compute::make_backend("cpu", {.threads = 3}).take()) {}

  // Rows of one sequence from position 0 on, in blocks of 16; the first `num_own` are no ids.
  StepOutput run(std::string_view model, std::int32_t rows,
                 const std::atomic<bool>* abort = nullptr, std::int32_t num_own = 2) {
    const auto loaded = load_golden_model(model, backend_);
    layers_ = loaded->config.num_layers;
    ropes_ = std::ssize(loaded->config.ropes);
    runner_ = TransformerRunner::make(loaded, backend_, {}).take();
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks_);
    plan.abort = abort;
    const std::vector<float> own(2 * static_cast<std::size_t>(runner_->hidden_dim()), 0.25F);
    plan.embeddings = own;
    for (std::int32_t i = 0; i < rows; ++i) {
      plan.rows.push_back(
          {.token = i, .position = i, .wants_logits = i + 1 == rows, .is_embedding = i < num_own});
    }
    return runner_->forward(plan);
  }

  BrokenBackend backend_;
  std::vector<std::int32_t> blocks_ = {0, 1, 2, 3};
  std::unique_ptr<TransformerRunner> runner_;
  std::int64_t layers_ = 0, ropes_ = 0;
};

// A device whose results come late: greedy ids of two sequences, one step in flight and two.
TEST(StepsInFlight, TheSecondTakesItsTokensFromTheFirst) {
  const auto generate = [](bool is_behind) {
    BrokenBackend backend(compute::make_backend("cpu", {.threads = 1}).take());
    backend.is_behind = is_behind;
    const auto loaded = load_golden_model("tests/golden/gpt2_tiny", backend);
    const auto runner = TransformerRunner::make(loaded, backend, {}).take();
    EXPECT_EQ(runner->limits().steps_in_flight, is_behind ? 2 : 1);
    const std::vector<std::vector<std::int32_t>> blocks = {{0, 1}, {2, 3}};
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> tokens = {5, 9};
    const auto submit = [&](std::int32_t position, bool knows) {
      BatchPlan plan;
      for (std::int32_t s = 0; s < 2; ++s) {
        plan.block_tables.emplace_back(blocks[static_cast<std::size_t>(s)]);
        plan.rows.push_back({.token = knows ? tokens[static_cast<std::size_t>(s)] : 0,
                             .position = position,
                             .sequence = s,
                             .wants_argmax = true,
                             .awaited = knows ? -1 : s});
      }
      runner->submit(plan);
    };
    const auto collect = [&] {
      const StepOutput output = runner->collect();
      tokens.assign(output.argmax.begin(), output.argmax.end());
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    };
    constexpr std::int32_t kSteps = 20;
    submit(0, true);
    for (std::int32_t position = 1; position < kSteps; ++position) {
      if (!is_behind) collect();
      submit(position, !is_behind);
      if (is_behind) collect();
    }
    collect();
    return ids;
  };
  const std::vector<std::int32_t> expected = generate(false);
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_EQ(generate(true), expected);
}

// A step that chooses later, of edited logits, and one behind it that awaits its ids.
TEST(StepsInFlight, WhatIsChosenLaterIsChosenOfEditedLogits) {
  BrokenBackend backend(compute::make_backend("reference").take());
  backend.is_behind = true;
  const auto loaded = load_golden_model("tests/golden/gpt2_tiny", backend);
  const auto runner = TransformerRunner::make(loaded, backend, {}).take();
  ASSERT_GT(runner->limits().logit_changes, 0);
  const auto vocab = static_cast<std::size_t>(runner->vocab_size());
  const std::vector<std::vector<std::int32_t>> blocks = {{0, 1}, {2, 3}};
  BatchPlan plan;
  for (std::int32_t s = 0; s < 2; ++s) {
    plan.block_tables.emplace_back(blocks[static_cast<std::size_t>(s)]);
    plan.rows.push_back({.token = 5 + 4 * s, .sequence = s, .wants_logits = true});
  }
  const StepOutput whole = runner->forward(plan);
  const std::vector<float> logits(whole.logits.begin(), whole.logits.end());
  std::size_t odd = 1;  // the most probable of the odd ids, in the first row
  for (std::size_t id = 1; id < vocab; id += 2) odd = logits[id] > logits[odd] ? id : odd;
  const std::vector<std::uint32_t> may_follow((vocab + 31) / 32, 0xAAAAAAAAU);
  const std::vector<LogitChange> changes = {{.id = 3, .bias = 500, .count = 1},
                                            {.id = 4, .bias = 500, .count = 2}};
  for (BatchRow& row : plan.rows) {
    row.wants_logits = false;
    row.wants_argmax = true;
  }
  plan.chooses_later = true;
  runner->submit(plan);
  runner->choose(std::vector<RowEdits>{{.may_follow = may_follow},
                                       {.changes = changes, .frequency_penalty = 400}});
  BatchPlan behind = plan;
  behind.chooses_later = false;
  for (std::int32_t s = 0; s < 2; ++s) {
    behind.rows[static_cast<std::size_t>(s)] = {
        .position = 1, .sequence = s, .wants_argmax = true, .awaited = s};
  }
  runner->submit(behind);
  const StepOutput chosen = runner->collect();
  const std::vector<std::int32_t> ids(chosen.argmax.begin(), chosen.argmax.end());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{static_cast<std::int32_t>(odd), 3}));
  const StepOutput next = runner->collect();
  const std::vector<std::int32_t> found(next.argmax.begin(), next.argmax.end());
  // The same with the ids said by the host.
  for (std::size_t s = 0; s < 2; ++s) {
    behind.rows[s].awaited = -1;
    behind.rows[s].token = ids[s];
  }
  const StepOutput again = runner->forward(behind);
  EXPECT_EQ(found, std::vector<std::int32_t>(again.argmax.begin(), again.argmax.end()));
  // Nobody chose: there are no ids.
  EXPECT_TRUE(runner->forward(plan).argmax.empty());
}

TEST(StepsInFlight, BehindAnAbortedOneNothingIsComputed) {
  BrokenBackend backend(compute::make_backend("cpu", {.threads = 1}).take());
  backend.is_behind = true;
  const auto loaded = load_golden_model("tests/golden/gpt2_tiny", backend);
  const auto runner = TransformerRunner::make(loaded, backend, {}).take();
  const std::vector<std::int32_t> blocks = {0, 1};
  const std::atomic<bool> abort = true;
  BatchPlan plan;
  plan.block_tables.emplace_back(blocks);
  plan.abort = &abort;
  plan.rows.push_back({.token = 5, .wants_argmax = true});
  runner->submit(plan);
  plan.abort = nullptr;
  plan.rows[0] = {.position = 1, .wants_argmax = true, .awaited = 0};
  int begun = 0;
  backend.on_begin_step = [&](const compute::StepShape&) { ++begun; };
  runner->submit(plan);
  EXPECT_EQ(begun, 0);
  EXPECT_TRUE(runner->collect().aborted);
  EXPECT_TRUE(runner->collect().aborted);
  plan.rows[0] = {.token = 5, .wants_argmax = true};
  EXPECT_FALSE(runner->forward(plan).aborted);
}

TEST_F(HeardStep, IsAnnouncedBeforeItsOpsAndEndedBeforeItsResultsAreFetched) {
  std::vector<std::string> heard;
  backend_.on_begin_step = [&](const compute::StepShape& shape) {
    heard.push_back(fmt::format("begin {} rows, {} with logits, {} sequence", shape.rows,
                                shape.logit_rows, shape.sequences));
    EXPECT_FALSE(shape.observed);
  };
  backend_.on_end_step = [&] { heard.emplace_back("end"); };
  backend_.on_download = [&] { heard.emplace_back("download"); };
  backend_.on_upload = [&] {
    if (!heard.empty()) heard.emplace_back("upload");
  };
  backend_.on_linear = [&](compute::LinearTarget&) {
    if (heard.back() != "product") heard.emplace_back("product");
  };
  run("tests/golden/families/llama", 5);
  EXPECT_EQ(heard, (std::vector<std::string>{"begin 5 rows, 1 with logits, 1 sequence", "product",
                                             "end", "download"}));
}

TEST_F(HeardStep, BeginsAgainWhereTheDeviceHadNoRoomToKeepIt) {
  int begun = 0;
  int ends = 0;
  backend_.on_begin_step = [&](const compute::StepShape&) { ++begun; };
  backend_.on_end_step = [&] { ++ends; };
  const StepOutput sound = run("tests/golden/families/llama", 5, nullptr, 0);
  const std::vector<float> expected(sound.logits.begin(), sound.logits.end());
  EXPECT_EQ(begun, 1);
  backend_.refused_steps = 1;
  const StepOutput again = run("tests/golden/families/llama", 5, nullptr, 0);
  EXPECT_EQ(begun, 3);
  EXPECT_EQ(ends, 3);
  EXPECT_TRUE(std::ranges::equal(again.logits, expected));
}

TEST_F(HeardStep, HasAsManyRowsAsTheBackendSaysAndOneForEachSequence) {
  const auto loaded = load_golden_model("tests/golden/families/llama", backend_);
  const auto rows_with = [&](const RunnerLimits& limits) {
    return TransformerRunner::make(loaded, backend_, {.limits = limits}).take()->limits().rows;
  };
  EXPECT_EQ(rows_with({}), backend_.step_rows());
  backend_.wanted_step_rows = 24;
  EXPECT_EQ(rows_with({}), 24);
  EXPECT_EQ(rows_with({.sequences = 40}), 40);
  EXPECT_EQ(rows_with({.rows = 7, .sequences = 2}), 7);
}

TEST_F(HeardStep, AnglesAreComputedOnceWhateverTheNumberOfLayers) {
  for (const std::string_view model :
       {"tests/golden/families/llama", "tests/golden/families/gemma3"}) {
    std::int64_t count = 0;
    backend_.on_rope_angles = [&](const compute::RopeAnglesArgs&) { ++count; };
    run(model, 5);
    EXPECT_GT(layers_, 1);
    EXPECT_EQ(count, ropes_);
  }
}

TEST_F(HeardStep, AttentionIsToldTheRunsOfItsRows) {
  backend_.on_attention = [](compute::AttentionArgs& args) {
    ASSERT_EQ(args.runs.size(), 1U);
    EXPECT_EQ(args.runs[0].rows, 5);
    EXPECT_EQ(args.runs[0].first_position, 0);
  };
  run("tests/golden/families/llama", 5);
}

TEST_F(HeardStep, IsGivenUpBetweenTwoLayersAndEnded) {
  std::atomic<bool> abort = false;
  int attentions = 0;
  int ends = 0;
  backend_.on_attention = [&](compute::AttentionArgs&) {
    ++attentions;
    abort = true;
  };
  backend_.on_end_step = [&] { ++ends; };
  EXPECT_TRUE(run("tests/golden/families/llama", 5, &abort).aborted);
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(ends, 1);
}

// How often threads meet in a layer, with the ops one by one and with composite ones.
// docs/kernels.md has these numbers.
TEST_F(HeardStep, ThreadsMeetSixTimesALayerInsteadOfEleven) {
  const auto meetings_of = [](std::string_view model, std::int32_t rows, bool composite) {
    const auto cpu = compute::make_backend("cpu", {.threads = 3}).take();
    BrokenBackend parts(compute::make_backend("cpu", {.threads = 3}).take());
    compute::Backend& backend = composite ? *cpu : parts;
    const auto loaded = load_golden_model(model, backend);
    const auto runner = TransformerRunner::make(loaded, backend, {}).take();
    const std::vector<std::int32_t> blocks = {0, 1, 2, 3};
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks);
    for (std::int32_t i = 0; i < rows; ++i) plan.rows.push_back({i + 1, i, 0, false});
    const std::int64_t before = backend.thread_meetings();
    runner->forward(plan);
    // Without logits a step is its layers, one look-up, and the angles.
    const std::int64_t around = rows > 1 ? 1 + std::ssize(loaded->config.ropes) : 0;
    const std::int64_t meetings = backend.thread_meetings() - before - around;
    EXPECT_EQ(meetings % loaded->config.num_layers, 0);
    return meetings / loaded->config.num_layers;
  };
  EXPECT_EQ(meetings_of("tests/golden/families/llama", 4, false), 11);
  EXPECT_EQ(meetings_of("tests/golden/families/llama", 4, true), 6);
  EXPECT_EQ(meetings_of("tests/golden/families/qwen3", 4, false), 13);
  EXPECT_EQ(meetings_of("tests/golden/families/qwen3", 4, true), 6);
  EXPECT_EQ(meetings_of("tests/golden/families/llama", 1, false), 5);
  EXPECT_EQ(meetings_of("tests/golden/families/llama", 1, true), 5);
}

}  // namespace
}  // namespace llorch::model
