#include "tools/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "compute/create.h"
#include "model/checkpoints.h"
#include "model/load.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "tools/test_model.h"

namespace llorch::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Says of every token that the next is its successor, with a known probability.
class CountingRunner : public model::ModelRunner {
 public:
  explicit CountingRunner(float logit) : logit_(logit) {
    limits_.rows = 3;  // windows do not come in whole steps
    limits_.logit_rows = 3;
  }
  std::int32_t vocab_size() const override { return 10; }
  std::int32_t hidden_dim() const override { return 1; }
  std::int32_t context_length() const override { return 64; }
  const model::RunnerLimits& limits() const override { return limits_; }
  void submit(const model::BatchPlan& plan) override {
    logits_.clear();
    for (const model::BatchRow& row : plan.rows) {
      rows.push_back(row);
      if (!row.wants_logits) continue;
      const std::size_t begin = logits_.size();
      logits_.resize(begin + 10);
      logits_[begin + static_cast<std::size_t>((row.token + 1) % 10)] = logit_;
    }
  }
  model::StepOutput collect() override { return {.logits = logits_}; }
  std::vector<model::BatchRow> rows;

 private:
  float logit_;
  model::RunnerLimits limits_;
  std::vector<float> logits_;
};

TEST(Perplexity, OfAModelThatKnowsNothingIsTheVocabulary) {
  CountingRunner runner(0);
  std::vector<std::int32_t> ids(50);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 10);
  const Score score = score_windows(runner, ids, {.context = 8}, {}).take();
  EXPECT_NEAR(score.perplexity(), 10, 1e-9);
  EXPECT_NEAR(score.standard_error(), 0, 1e-6);
  EXPECT_EQ(score.tokens, 6 * 3);  // six windows, positions 4 to 6 of each predict 5 to 7
}

TEST(Perplexity, ScoresTheSecondHalfOfEachWindow) {
  CountingRunner runner(std::log(9.0F));  // the successor has one half
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6};
  std::int64_t reported = 0;
  const Score score = score_windows(runner, ids, {.context = 8, .bos = 9},
                                    [&](std::int64_t done, std::int64_t all, const Score&) {
                                      EXPECT_EQ(all, 2);
                                      reported = done;
                                    })
                          .take();
  EXPECT_EQ(reported, 2);
  EXPECT_EQ(score.tokens, 6);
  EXPECT_NEAR(score.perplexity(), 2, 1e-6);
  ASSERT_EQ(runner.rows.size(), 16U);
  EXPECT_EQ(runner.rows[0].token, 9);
  EXPECT_EQ(runner.rows[8].token, 9) << "each window starts with the beginning-of-text token";
  EXPECT_EQ(runner.rows[9].token, 9) << "which is the window's own second token here";
  EXPECT_EQ(runner.rows[8].position, 0);
  EXPECT_FALSE(runner.rows[3].wants_logits);
  EXPECT_TRUE(runner.rows[4].wants_logits);
  EXPECT_FALSE(runner.rows[7].wants_logits) << "nothing follows the last token";
}

TEST(Perplexity, TheErrorIsThatOfTheMean) {
  Score score;
  for (const double term : {1.0, 2.0, 3.0, 4.0}) score.add(term);
  EXPECT_NEAR(score.perplexity(), std::exp(2.5), 1e-12);
  EXPECT_NEAR(score.standard_error(), std::exp(2.5) * std::sqrt(1.25 / 3), 1e-12);
}

TEST(Perplexity, IsStableForLargeLogits) {
  const std::vector<float> logits = {1000, 990, -1000};
  EXPECT_NEAR(negative_log_probability(logits, 0), std::log1p(std::exp(-10.0)), 1e-12);
  EXPECT_NEAR(negative_log_probability(logits, 2), 2000, 1e-3);
}

TEST(Perplexity, RefusesShortTextsAndForeignIds) {
  CountingRunner runner(0);
  const std::vector<std::int32_t> few = {1, 2, 3};
  EXPECT_THAT(score_windows(runner, few, {.context = 8}, {}).error().message, HasSubstr("--ctx"));
  const std::vector<std::int32_t> foreign = {1, 2, 3, 4, 5, 6, 7, 10};
  EXPECT_THAT(score_windows(runner, foreign, {.context = 8}, {}).error().message, HasSubstr("10"));
}

constexpr std::string_view kText =
    "The quick brown fox jumps over the lazy dog. Once upon a time there was a little girl who "
    "lived in a small house by the sea, and every morning she went down to look at the boats. "
    "Nobody knew where they came from; 1234 of them, she said, or perhaps 5678. Then it rained.";

test::ProgramOutcome run_program(std::vector<std::string> arguments) {
  return test::run_program(LLORCH_PERPLEXITY, std::move(arguments));
}

// The same by way of one forward pass over each window.
double slow_perplexity(const std::filesystem::path& path, std::size_t context) {
  const auto backend = compute::make_backend("reference").take();
  const auto loaded = model::load_model(path, *backend).take();
  const auto ids = tokenizer::load_tokenizer(path).take().encode(kText, {true, false}).take();
  double sum = 0;
  int count = 0;
  for (std::size_t begin = 0; begin + context <= ids.size(); begin += context) {
    const std::vector<std::int32_t> window(
        ids.begin() + static_cast<std::ptrdiff_t>(begin),
        ids.begin() + static_cast<std::ptrdiff_t>(begin + context));
    const auto trace = model::record_trace(loaded, *backend, window, 0).take();
    const std::vector<float>& logits = trace.tensors.at("logits").values;
    const std::size_t vocab = logits.size() / context;
    for (std::size_t i = context / 2; i + 1 < context; ++i) {
      double total = 0;
      for (std::size_t v = 0; v < vocab; ++v) total += std::exp(double{logits[i * vocab + v]});
      sum -= std::log(
          std::exp(double{logits[i * vocab + static_cast<std::size_t>(window[i + 1])]}) / total);
      ++count;
    }
  }
  return std::exp(sum / count);
}

TEST(PerplexityProgram, ComparesModelsInATableAndAsJson) {
  const test::TempDir folder;
  write_test_model(folder / "model");
  ASSERT_TRUE(base::write_file_atomically(folder / "text.txt", kText).ok());
  ASSERT_EQ(
      test::run_program(LLORCH_CONVERT, {folder / "model", folder / "q4.gguf", "--type", "q4_k"})
          .exit_code,
      0);
  const std::vector<std::string> arguments = {
      "--model", folder / "model",    "--model", folder / "q4.gguf",
      "--text",  folder / "text.txt", "--ctx",   "32"};
  const auto table = run_program(arguments);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.err, "");
  EXPECT_THAT(table.out, AllOf(HasSubstr("perplexity"), HasSubstr("q4.gguf"), HasSubstr("Q4_K"),
                               HasSubstr("±"), HasSubstr("vs first"), HasSubstr(" %")));
  std::vector<std::string> with_json = arguments;
  with_json.emplace_back("--json");
  const json::Value value = json::parse(run_program(with_json).out).take();
  const json::Array& models = value.at("models").as_array();
  ASSERT_EQ(models.size(), 2U);
  EXPECT_NEAR(models[0].at("perplexity").as_double(), slow_perplexity(folder / "model", 32),
              1e-3 * models[0].at("perplexity").as_double());
  EXPECT_EQ(models[0].at("ratio").as_double(), 1.0);
  EXPECT_NE(models[1].at("perplexity").as_double(), models[0].at("perplexity").as_double());
  EXPECT_LT(models[1].at("bits_per_weight").as_double(), 6.0);
  const auto help = run_program({"--help"});
  for (const auto& entry : models[0].as_object())
    EXPECT_THAT(help.out, HasSubstr(std::string(json::view(entry.key())))) << "not documented";
}

// Spelt out, a marker is several tokens.
TEST(PerplexityProgram, TakesMarkersForTokensWhenAsked) {
  const test::TempDir folder;
  write_test_model(folder / "model");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "a<|endoftext|>";
  ASSERT_TRUE(base::write_file_atomically(folder / "text.txt", text).ok());
  std::vector<std::string> arguments = {
      "--model", folder / "model", "--text", folder / "text.txt", "--ctx", "8", "--json"};
  const auto windows = [&] {
    const auto run = run_program(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out).take().at("models").as_array()[0].at("windows").as_int64();
  };
  const std::int64_t spelt = windows();
  arguments.emplace_back("--special");
  EXPECT_LT(windows(), spelt / 2);
}

// The reference takes the weights of a file as CUDA has them; a type that CUDA takes as it is has
// no such form.
TEST(PerplexityProgram, MeasuresWeightsInHalves) {
  const test::TempDir folder;
  write_test_model(folder / "model");
  ASSERT_TRUE(base::write_file_atomically(folder / "text.txt", kText).ok());
  const auto convert = [&](const std::string& type) {
    const std::string file = folder / (type + ".gguf");
    EXPECT_EQ(test::run_program(LLORCH_CONVERT, {folder / "model", file, "--type", type}).exit_code,
              0);
    return file;
  };
  const auto score = [&](const std::string& file, std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", file, "--text", folder / "text.txt", "--ctx", "8",
                               "--windows", "1", "--backend", "reference", "--json"});
    return run_program(more);
  };
  const std::string blocks = convert("q4_k");
  const auto perplexity = [&](const std::vector<std::string>& more) {
    const auto run = score(blocks, more);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out).take().at("models").as_array()[0].at("perplexity").as_double();
  };
  const double exact = perplexity({"--weights", "exact"});
  EXPECT_EQ(exact, perplexity({}));
  const double half = perplexity({"--weights", "half"});
  EXPECT_NE(half, exact);
  EXPECT_NEAR(half, exact, 1e-2 * exact);
  const auto floats = score(convert("f32"), {"--weights", "half"});
  EXPECT_EQ(floats.exit_code, 1);
  EXPECT_THAT(floats.err, HasSubstr("weights of F32 cannot be rounded to half"));
}

TEST(PerplexityProgram, SaysWhatIsWrong) {
  const test::TempDir folder;
  write_test_model(folder / "model");
  ASSERT_TRUE(base::write_file_atomically(folder / "text.txt", kText).ok());
  const auto too_long =
      run_program({"--model", folder / "model", "--text", folder / "text.txt", "--ctx", "512"});
  EXPECT_EQ(too_long.exit_code, 1);
  EXPECT_THAT(too_long.err, HasSubstr("128"));
  EXPECT_EQ(run_program({"--model", folder / "model", "--text", "/nowhere"}).exit_code, 1);
  EXPECT_EQ(run_program({"--text", folder / "text.txt"}).exit_code, 2);
  EXPECT_EQ(run_program({"--model", folder / "model", "--text", folder / "text.txt", "--ctx", "1"})
                .exit_code,
            2);
}

}  // namespace
}  // namespace llorch::tools
