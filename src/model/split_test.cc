// A model cut between layers computes what the whole computes, bit for bit.
#include "model/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "formats/open.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

std::vector<std::int32_t> shared(std::int32_t layers, std::vector<std::int64_t> shares) {
  return share_layers(layers, shares).take();
}

TEST(ShareLayers, FollowsTheFreeMemoryOfEachDevice) {
  EXPECT_THAT(shared(32, {100}), ElementsAre(32));
  EXPECT_THAT(shared(32, {100, 100}), ElementsAre(16, 16));
  EXPECT_THAT(shared(33, {100, 100}), ElementsAre(17, 16));
  EXPECT_THAT(shared(32, {300, 100}), ElementsAre(24, 8));
  EXPECT_THAT(shared(30, {1, 1, 1}), ElementsAre(10, 10, 10));
}

TEST(ShareLayers, LeavesNoDeviceWithoutALayer) {
  EXPECT_THAT(shared(4, {1'000'000, 0}), ElementsAre(3, 1));
  EXPECT_THAT(shared(4, {0, 1'000'000, 0}), ElementsAre(1, 2, 1));
  EXPECT_THAT(shared(2, {0, 0}), ElementsAre(1, 1));
  const auto refused = share_layers(2, std::vector<std::int64_t>{1, 1, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("2 layers cannot be shared by 3 devices"));
}

struct Subject {
  std::string_view path;
  std::string_view backend;
};

class SplitTest : public testing::TestWithParam<Subject> {
 protected:
  SplitTest() {
    file_ = std::make_shared<const formats::WeightFile>(
        formats::open_weights(test::source_path(GetParam().path)).take());
    plan_ = plan_model(*file_).take();
    blocks_.resize(kBlocks);
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  std::unique_ptr<TransformerRunner> make_runner(ModelPlan plan) {
    backends_.push_back(test_backend(GetParam().backend));
    auto model = load_model(file_, std::move(plan), *backends_.back()).take();
    RunnerOptions options;
    options.limits = {
        .rows = 32, .logit_rows = 32, .sequences = 2, .num_blocks = kBlocks, .block_tokens = 16};
    return TransformerRunner::make(std::move(model), *backends_.back(), options).take();
  }
  std::unique_ptr<SplitRunner> make_split(std::span<const std::int32_t> layers) {
    std::vector<std::unique_ptr<TransformerRunner>> parts;
    for (ModelPlan& part : split_plan(plan_, layers)) parts.push_back(make_runner(std::move(part)));
    return std::make_unique<SplitRunner>(std::move(parts));
  }

  // Rows of one sequence, the last of them wanting all there is to want.
  BatchPlan step(std::int32_t first, std::int32_t count) const {
    BatchPlan plan;
    plan.block_tables.emplace_back(blocks_);
    for (std::int32_t i = first; i < first + count; ++i)
      plan.rows.push_back({.token = (7 * i + 3) % plan_.config.vocab_size, .position = i});
    plan.rows.back().wants_logits = true;
    plan.rows.back().wants_hidden = true;
    plan.rows.front().wants_argmax = count > 1;
    return plan;
  }

  static constexpr std::int32_t kBlocks = 4;
  std::shared_ptr<const formats::WeightFile> file_;
  ModelPlan plan_;
  std::vector<std::int32_t> blocks_;
  std::vector<std::unique_ptr<compute::Backend>> backends_;  // outlive what runs on them
};

template <class T>
std::vector<T> copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

TEST_P(SplitTest, GivesTheBitsOfTheWhole) {
  const std::int32_t last = plan_.config.num_layers - 1;
  const std::int32_t layers[] = {1, last};
  const auto split = make_split(layers);
  const auto whole = make_runner(plan_);
  // A prompt in two pieces, then single tokens.
  for (const auto& [first, count] : {std::pair{0, 20}, {20, 7}, {27, 1}, {28, 1}}) {
    const BatchPlan plan = step(first, count);
    const StepOutput wanted = whole->forward(plan);
    const StepOutput got = split->forward(plan);
    EXPECT_EQ(copy(got.logits), copy(wanted.logits)) << "from " << first;
    EXPECT_EQ(copy(got.hidden), copy(wanted.hidden)) << "from " << first;
    EXPECT_EQ(copy(got.argmax), copy(wanted.argmax)) << "from " << first;
    ASSERT_EQ(std::ssize(got.logits), plan_.config.vocab_size);
  }
}

TEST_P(SplitTest, AStepThatIsGivenUpCanBeRunAgain) {
  const std::int32_t layers[] = {plan_.config.num_layers - 1, 1};
  const auto split = make_split(layers);
  const auto whole = make_runner(plan_);
  BatchPlan plan = step(0, 20);
  const std::atomic<bool> abort = true;
  plan.abort = &abort;
  EXPECT_TRUE(split->forward(plan).aborted);
  plan.abort = nullptr;
  EXPECT_EQ(copy(split->forward(plan).logits), copy(whole->forward(plan).logits));
}

// Llama's output matrix is its own, Gemma's and GPT-2's is the embedding; Gemma's layers alternate.
INSTANTIATE_TEST_SUITE_P(Families, SplitTest,
                         testing::Values(Subject{"tests/golden/families/llama", "reference"},
                                         Subject{"tests/golden/families/llama", "cpu"},
                                         Subject{"tests/golden/families/gemma3", "cpu"},
                                         Subject{"tests/golden/families/qwen2", "cpu"},
                                         Subject{"tests/golden/gpt2_tiny", "reference"},
                                         Subject{"tests/golden/gpt2_tiny", "cpu"}),
                         [](const auto& param) {
                           const std::string path(param.param.path);
                           return path.substr(path.rfind('/') + 1) + "_" +
                                  std::string(param.param.backend);
                         });

TEST(SplitPlan, EachTensorIsWhereItIsRead) {
  const auto file = formats::open_weights(test::source_path("tests/golden/gpt2_tiny")).take();
  const ModelPlan whole = plan_model(file).take();
  const std::int32_t layers[] = {1, whole.config.num_layers - 1};
  const std::vector<ModelPlan> parts = split_plan(whole, layers);
  const auto count = [](const ModelPlan& plan, Role role) {
    return std::count_if(plan.tensors.begin(), plan.tensors.end(),
                         [role](const MappedTensor& m) { return m.spec.role == role; });
  };
  ASSERT_TRUE(whole.config.tied_output);
  EXPECT_EQ(count(parts[0], Role::TokenEmbedding), 1);
  EXPECT_EQ(count(parts[0], Role::PositionEmbedding), 1);
  EXPECT_EQ(count(parts[0], Role::Output) + count(parts[0], Role::OutputNormWeight), 0);
  EXPECT_EQ(count(parts[1], Role::TokenEmbedding) + count(parts[1], Role::PositionEmbedding), 0);
  EXPECT_EQ(count(parts[1], Role::Output), 1) << "the embedding once more, to multiply with";
  EXPECT_EQ(count(parts[1], Role::OutputNormWeight), 1);
  // One tensor more than before: the tied one.
  EXPECT_EQ(parts[0].tensors.size() + parts[1].tensors.size(), whole.tensors.size() + 1);
}

}  // namespace
}  // namespace llorch::model
