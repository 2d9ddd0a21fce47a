// What the forward pass promises whatever is in the batch (pitfalls 18, 19, 21, 22, 24, 27 of the
// original project).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "formats/open.h"
#include "model/broken_backend.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

struct Subject {
  FamilyFixture fixture;
  std::string_view backend;
};

class ForwardTest : public testing::TestWithParam<Subject> {
 protected:
  ForwardTest() : golden_(GetParam().fixture.golden), backend_(test_backend(GetParam().backend)) {
    model_ = load_golden_model(GetParam().fixture.path, *backend_);
    runner_ = make_runner();
    blocks_.resize(static_cast<std::size_t>((runner_->context_length() + 15) / 16));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  std::unique_ptr<TransformerRunner> make_runner(tensor::DType kv_dtype = tensor::DType::F32,
                                                 std::int32_t block_tokens = 16) {
    RunnerOptions options;
    options.limits = {.rows = 128,
                      .logit_rows = 128,
                      .sequences = 4,
                      .num_blocks = 256 / block_tokens,
                      .block_tokens = block_tokens};
    options.kv_dtype = kv_dtype;
    return TransformerRunner::make(model_, *backend_, options).take();
  }

  // Rows of one sequence at consecutive positions, all wanting logits.
  static void append(BatchPlan& plan, std::span<const std::int32_t> ids, std::int32_t first,
                     std::int32_t sequence) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      plan.rows.push_back({ids[i], first + static_cast<std::int32_t>(i), sequence, true});
    }
  }

  static std::vector<float> run(ModelRunner& runner, const BatchPlan& plan) {
    const std::span<const float> logits = runner.forward(plan).logits;
    return {logits.begin(), logits.end()};
  }

  // One sequence, from its beginning.
  BatchPlan plan_of(std::span<const std::int32_t> ids) const {
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks_);
    append(plan, ids, 0, 0);
    return plan;
  }
  std::vector<float> run_alone(std::span<const std::int32_t> ids) {
    return run(*runner_, plan_of(ids));
  }

  Golden golden_;
  std::unique_ptr<compute::Backend> backend_;
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<TransformerRunner> runner_;
  std::vector<std::int32_t> blocks_;  // 0, 1, 2 … for the whole context
};

TEST_P(ForwardTest, PrefillEqualsTokenByTokenBitForBit) {
  const std::vector<std::int32_t> ids = golden_.ids("full_ids");
  const std::vector<float> batched = run_alone(ids);
  std::vector<float> stepped;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks_);
    append(plan, {&ids[i], 1}, static_cast<std::int32_t>(i), 0);
    const std::vector<float> one = run(*runner_, plan);
    stepped.insert(stepped.end(), one.begin(), one.end());
  }
  EXPECT_EQ(batched, stepped);
}

TEST_P(ForwardTest, ChunkedPrefillEqualsWholePrefill) {
  const std::vector<std::int32_t> expected = golden_.ids("greedy_ids");
  const std::vector<std::int32_t> prompt = golden_.ids("ids");
  const auto count = static_cast<std::int32_t>(expected.size() - prompt.size());
  for (const std::int32_t chunk : {1, 2, 3, 5, 7, 11, 12, 64}) {
    EXPECT_EQ(generate_greedy(*runner_, prompt, {.count = count, .chunk_rows = chunk}), expected)
        << chunk;
  }
}

TEST_P(ForwardTest, SamePromptWarmAndColdGivesTheSameLogits) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> cold = run_alone(ids);
  const std::vector<std::int32_t> other(40, 3);
  run_alone(other);  // a longer request in the very same blocks
  EXPECT_EQ(run_alone(ids), cold);
  EXPECT_EQ(run_alone(ids), cold);
}

TEST_P(ForwardTest, AFutureTokenChangesNoPastOutput) {
  std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> before = run_alone(ids);
  const auto vocab = static_cast<std::ptrdiff_t>(runner_->vocab_size());
  for (std::size_t changed = 1; changed < ids.size(); ++changed) {
    std::vector<std::int32_t> edited = ids;
    edited[changed] = (edited[changed] + 1) % runner_->vocab_size();
    const std::vector<float> after = run_alone(edited);
    const auto past = static_cast<std::ptrdiff_t>(changed) * vocab;
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + past, after.begin())) << changed;
    EXPECT_FALSE(std::equal(before.begin() + past, before.end(), after.begin() + past)) << changed;
  }
}

TEST_P(ForwardTest, ResultIsIndependentOfBatchNeighbours) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> alone = run_alone(ids);
  const std::vector<std::int32_t> first = {0, 14, 15};
  const std::vector<std::int32_t> second = {7, 2};
  const std::vector<std::int32_t> third = {5, 1, 9};
  const std::vector<std::int32_t> noise = golden_.ids("full_ids");
  BatchPlan plan;
  plan.block_tables = {second, third, first};
  append(plan, std::span(noise).first(20), 0, 0);
  append(plan, ids, 0, 2);
  append(plan, std::span(noise).subspan(20, 30), 0, 1);
  const std::vector<float> together = run(*runner_, plan);
  const auto begin = together.begin() + 20 * static_cast<std::ptrdiff_t>(runner_->vocab_size());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), begin));
}

TEST_P(ForwardTest, BlocksMayLieAnywhere) {
  const std::vector<std::int32_t> prompt = golden_.ids("ids");
  const std::vector<std::int32_t> expected = golden_.ids("greedy_ids");
  const auto count = static_cast<std::int32_t>(expected.size() - prompt.size());
  std::mt19937 random(7);
  for (const std::int32_t block_tokens : {1, 4, 16, 64}) {
    const auto runner = make_runner(tensor::DType::F32, block_tokens);
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(runner->limits().num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::ranges::shuffle(blocks, random);
    blocks.resize(
        static_cast<std::size_t>((runner->context_length() + block_tokens - 1) / block_tokens));
    EXPECT_EQ(generate_greedy(*runner, prompt, {.count = count, .blocks = blocks}), expected)
        << block_tokens;
  }
}

TEST_P(ForwardTest, SequencesMayShareTheBlocksOfAPrefix) {
  const std::vector<std::int32_t> full = golden_.ids("full_ids");
  const std::vector<float> alone = run_alone(std::span(full).first(24));
  // Another sequence with the same first block continues in a block of its own.
  const std::vector<std::int32_t> shared = {0, 8};
  BatchPlan plan;
  plan.block_tables = {shared};
  append(plan, std::span(full).subspan(16, 8), 16, 0);
  const std::vector<float> continued = run(*runner_, plan);
  EXPECT_TRUE(std::equal(continued.begin(), continued.end(),
                         alone.begin() + 16 * static_cast<std::ptrdiff_t>(runner_->vocab_size())));
}

TEST_P(ForwardTest, FillsTheContextToItsLastSlot) {
  const std::vector<std::int32_t> full = golden_.ids("full_ids");
  ASSERT_EQ(static_cast<std::int32_t>(full.size()), runner_->context_length());
  const std::size_t given = GetParam().fixture.full_prompt;
  EXPECT_EQ(
      generate_greedy(*runner_, std::span(full).first(given),
                      {.count = runner_->context_length() - static_cast<std::int32_t>(given)}),
      full);
  const std::vector<float> ours = run_alone(full);
  const HostTensor expected = golden_.tensor("full_logits");
  ASSERT_EQ(ours.size(), expected.values.size());
  for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], expected.values[i], 1e-3) << i;
}

TEST_P(ForwardTest, LogitsOnlyWhereWanted) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> all = run_alone(ids);
  BatchPlan plan = plan_of(ids);
  for (BatchRow& row : plan.rows) row.wants_logits = row.position == 3 || row.position == 8;
  const std::vector<float> some = run(*runner_, plan);
  const auto vocab = static_cast<std::ptrdiff_t>(runner_->vocab_size());
  ASSERT_EQ(static_cast<std::ptrdiff_t>(some.size()), 2 * vocab);
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + vocab, all.begin() + 3 * vocab));
  EXPECT_TRUE(std::equal(some.begin() + vocab, some.end(), all.begin() + 8 * vocab));
  for (BatchRow& row : plan.rows) row.wants_logits = false;
  EXPECT_TRUE(runner_->forward(plan).logits.empty());
}

TEST_P(ForwardTest, HiddenRowsAreTheLastNormAndChangeNoLogits) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> all = run_alone(ids);
  BatchPlan plan = plan_of(ids);
  plan.rows[2].wants_hidden = true;
  plan.rows[5].wants_hidden = true;
  const StepOutput output = runner_->forward(plan);
  const HostTensor expected = golden_.tensor("ln_f");
  const auto dim = static_cast<std::size_t>(runner_->hidden_dim());
  ASSERT_EQ(output.hidden.size(), 2 * dim);
  for (std::size_t i = 0; i < dim; ++i) {
    EXPECT_NEAR(output.hidden[i], expected.values[2 * dim + i], 1e-4);
    EXPECT_NEAR(output.hidden[dim + i], expected.values[5 * dim + i], 1e-4);
  }
  EXPECT_TRUE(std::equal(output.logits.begin(), output.logits.end(), all.begin(), all.end()));
}

TEST_P(ForwardTest, TheArgmaxComesBackInsteadOfTheLogitsWhereThatIsWanted) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> all = run_alone(ids);
  ASSERT_TRUE(runner_->limits().finds_argmax);
  BatchPlan plan = plan_of(ids);
  const auto vocab = static_cast<std::ptrdiff_t>(runner_->vocab_size());
  std::vector<std::int32_t> expected;
  std::vector<float> logits;
  for (BatchRow& row : plan.rows) {
    const auto begin = all.begin() + row.position * vocab;
    row.wants_logits = row.position % 3 == 1;
    row.wants_argmax = row.position % 3 == 2;
    if (row.wants_logits) logits.insert(logits.end(), begin, begin + vocab);
    if (row.wants_argmax)
      expected.push_back(static_cast<std::int32_t>(std::max_element(begin, begin + vocab) - begin));
  }
  const StepOutput output = runner_->forward(plan);
  EXPECT_TRUE(std::ranges::equal(output.argmax, expected));
  EXPECT_TRUE(std::ranges::equal(output.logits, logits));
}

// Rows of the table, handed in as what has no id: every other row, out of order.
TEST_P(ForwardTest, RowsOfAPaddedVocabularyAreLeftOutAndNothingElseChanges) {
  const std::int32_t whole = runner_->vocab_size();
  const std::int32_t kept = whole - 5;
  std::vector<std::int32_t> ids = golden_.ids("full_ids");
  for (std::int32_t& id : ids) id %= kept;
  auto file = std::make_shared<const formats::WeightFile>(
      formats::open_weights(test::source_path(GetParam().fixture.path)).take());
  ModelPlan plan = plan_model(*file).take();
  const std::int64_t parameters = count_parameters(plan);
  cut_vocabulary(plan, whole + 1);
  EXPECT_EQ(plan.config.vocab_size, whole) << "it is only cut";
  cut_vocabulary(plan, kept);
  const std::vector<float> expected = run_alone(ids);
  model_ = load_model(file, std::move(plan), *backend_).take();
  EXPECT_EQ(model_->num_parameters, parameters);
  const auto cut = make_runner();
  ASSERT_EQ(cut->vocab_size(), kept);
  const std::vector<float> logits = run(*cut, plan_of(ids));
  ASSERT_EQ(logits.size(), ids.size() * static_cast<std::size_t>(kept));
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const auto* all = expected.data() + row * static_cast<std::size_t>(whole);
    EXPECT_TRUE(std::equal(all, all + kept, logits.data() + row * static_cast<std::size_t>(kept)))
        << row;
  }
}

TEST_P(ForwardTest, RowsMayBringTheirOwnEmbeddings) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t width = runner_->hidden_dim();
  compute::Buffer index_buffer = backend_->allocate(count * 4).take();
  compute::Buffer out_buffer = backend_->allocate(count * width * 4).take();
  backend_->upload(std::as_bytes(std::span(ids)), index_buffer.data());
  backend_->embed({.table = &model_->weights.token_embedding,
                   .ids = {index_buffer.data(), tensor::DType::I32, {count}},
                   .out = {out_buffer.data(), tensor::DType::F32, {count, width}},
                   .scale = model_->config.embedding_scale});
  std::vector<float> embeddings(static_cast<std::size_t>(count * width));
  backend_->download(out_buffer.data(), std::as_writable_bytes(std::span(embeddings)));
  BatchPlan plan = plan_of(ids);
  plan.embeddings = embeddings;
  for (std::size_t row = 0; row < plan.rows.size(); row += 2) {
    plan.rows[row].token = static_cast<std::int32_t>(row);
    plan.rows[row].is_embedding = true;
  }
  EXPECT_EQ(run(*runner_, plan), run_alone(ids));
  std::fill_n(embeddings.begin(), width, 0.5F);
  EXPECT_NE(run(*runner_, plan), run_alone(ids));
}

TEST_P(ForwardTest, AnAbortedStepGivesNothingAndCanBeRunAgain) {
  const std::vector<std::int32_t> ids = golden_.ids("ids");
  const std::vector<float> expected = run_alone(ids);
  std::atomic<bool> abort = true;
  BatchPlan plan;
  plan.block_tables.emplace_back(blocks_);
  plan.abort = &abort;
  append(plan, ids, 0, 0);
  const StepOutput output = runner_->forward(plan);
  EXPECT_TRUE(output.aborted);
  EXPECT_TRUE(output.logits.empty());
  abort = false;
  EXPECT_EQ(run(*runner_, plan), expected);
}

TEST_P(ForwardTest, HalfPrecisionCacheStaysClose) {
  const std::vector<std::int32_t> ids = golden_.ids("full_ids");
  const std::vector<float> exact = run_alone(ids);
  const auto half = make_runner(tensor::DType::F16);
  BatchPlan plan = plan_of(ids);
  const std::vector<float> close = run(*half, plan);
  EXPECT_NE(close, exact);
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(double{close[i]} - exact[i]));
  EXPECT_LT(worst, 0.05);
}

TEST_P(ForwardTest, BrokenPlansAreBugs) {
  const auto forward = [this](BatchRow row) {
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks_);
    plan.rows.push_back(row);
    runner_->forward(plan);
  };
  EXPECT_DEATH(forward({.token = runner_->vocab_size(), .position = 0, .sequence = 0}),
               "invariant broken");
  EXPECT_DEATH(forward({.token = -1, .position = 0, .sequence = 0}), "invariant broken");
  EXPECT_DEATH(forward({.token = 0, .position = runner_->context_length(), .sequence = 0}),
               "invariant broken");
  EXPECT_DEATH(forward({.token = 0, .position = 0, .sequence = 1}), "invariant broken");
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const char* backend : {"reference", "cpu"}) {
    all.push_back({{"gpt2_tiny", "tests/golden/gpt2_tiny"}, backend});
    for (const FamilyFixture& family : kFamilies) all.push_back({family, backend});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardTest, testing::ValuesIn(subjects()), [](const auto& test) {
  const std::string_view golden = test.param.fixture.golden;
  return fmt::format("{}_{}", golden.substr(golden.find('/') + 1), test.param.backend);
});

}  // namespace
}  // namespace llorch::model
