// The promise of engine.h on a real model and the real CPU kernels: same request, same seed, same
// ids, alone, in a batch of 16, after a prefix-cache hit, preempted and resumed.
#include "base/mutex.h"
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compute/reference/reference_backend.h"
#include "model/broken_backend.h"
#include "model/golden_fixture.h"

namespace llorch::engine {
namespace {

using model::Golden;

class WaitingSink final : public GenerationSink, public EmbeddingSink {
 public:
  void on_started(const GenerationStarted& /*started*/) override {}
  Verdict on_prompt_token(const ScoredToken& token) override {
    scores.emplace_back(token.logprob, token.top[0]);
    return Verdict::Continue;
  }
  Verdict on_token(const GeneratedToken& token) override {
    ids.push_back(token.id);
    return Verdict::Continue;
  }
  void on_finished(const GenerationEnd& ended) override {
    end = ended;
    finish();
  }
  void on_finished(Result<std::vector<float>> result) override {
    embedding = result.take();
    finish();
  }
  void wait() {
    const base::MutexLock lock(mutex_);
    while (!finished_) changed_.wait(mutex_);
  }

  std::vector<std::pair<float, TokenLogprob>> scores;  // all read after wait()
  std::vector<TokenId> ids;
  GenerationEnd end;
  std::vector<float> embedding;

 private:
  void finish() {
    const base::MutexLock lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool finished_ LLORCH_GUARDED_BY(mutex_) = false;
};

struct Plain {
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = 0;
  SamplingParams sampling = {};

  GenerationRequest request() const {
    GenerationRequest request;
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.sampling = sampling;
    return request;
  }
};

class EngineOnGpt2 : public testing::Test {
 protected:
  EngineOnGpt2()
      : golden_("gpt2_tiny"), backend_(compute::make_backend("cpu", {.threads = 1}).take()) {
    model_ = model::load_golden_model("tests/golden/gpt2_tiny", *backend_);
  }

  std::unique_ptr<Engine> start(std::int32_t num_blocks, const EngineOptions& options = {}) {
    model::RunnerOptions runner;
    runner.limits = {.num_blocks = num_blocks};
    return Engine::start(model::TransformerRunner::make(model_, *backend_, runner).take(), options);
  }

  static std::shared_ptr<WaitingSink> submit(Engine& engine, const Plain& plain) {
    auto sink = std::make_shared<WaitingSink>();
    const Result<GenerationId> id = engine.submit(plain.request(), sink);
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
    return sink;
  }

  std::vector<TokenId> alone(const Plain& plain) {
    const std::unique_ptr<Engine> engine = start(8, {.prefix_cache = false});
    const auto sink = submit(*engine, plain);
    sink->wait();
    return sink->ids;
  }

  // Requests that fit 64 positions, many with a common beginning of more than a block.
  std::vector<Plain> random_requests(std::size_t count, std::uint32_t seed) const {
    std::mt19937 random(seed);
    const auto between = [&](std::int32_t low, std::int32_t high) {
      return low + static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(high - low + 1));
    };
    std::vector<Plain> requests(count);
    for (Plain& plain : requests) {
      const std::int32_t length = between(1, 40);
      const bool common = between(0, 2) > 0;
      for (std::int32_t i = 0; i < length; ++i) {
        plain.prompt.push_back(common && i < 20 ? i * 3
                                                : between(0, model_->config.vocab_size - 1));
      }
      plain.max_tokens = between(1, model_->config.context_length - length);
      plain.sampling = {.temperature = between(0, 3) == 0 ? 0.0F : 1.0F,
                        .top_k = between(0, 2) == 0 ? 20 : 0,
                        .top_p = between(0, 2) == 0 ? 0.9F : 1.0F,
                        .repetition_penalty = between(0, 2) == 0 ? 1.2F : 1.0F,
                        .seed = random()};
    }
    return requests;
  }

  Golden golden_;
  std::unique_ptr<compute::Backend> backend_;
  std::shared_ptr<const model::LoadedModel> model_;
};

TEST_F(EngineOnGpt2, GreedyIdsAreThoseOfTransformers) {
  const std::vector<TokenId> prompt = golden_.ids("ids");
  const std::vector<TokenId> expected = golden_.ids("greedy_ids");
  // By the argmax that the backend finds, and by logits.
  for (const std::optional<std::int32_t> top : {std::optional<std::int32_t>(), std::optional(0)}) {
    const Plain plain = {.prompt = prompt,
                         .max_tokens = static_cast<std::int32_t>(expected.size() - prompt.size()),
                         .sampling = {.temperature = 0, .top_logprobs = top}};
    std::vector<TokenId> all = prompt;
    const std::vector<TokenId> ids = alone(plain);
    all.insert(all.end(), ids.begin(), ids.end());
    EXPECT_EQ(all, expected);
  }
}

TEST_F(EngineOnGpt2, ScoresOfThePromptAreThoseOfTransformers) {
  const std::vector<TokenId> prompt = golden_.ids("ids");
  const model::HostTensor logits = golden_.tensor("logits");  // (tokens, vocab)
  const auto vocab = static_cast<std::size_t>(model_->config.vocab_size);
  ASSERT_EQ(logits.values.size(), prompt.size() * vocab);
  // In one step, and in chunks.
  for (const std::int32_t step_tokens : {64, 3}) {
    const std::unique_ptr<Engine> engine = start(8, {.max_running = 2, .step_tokens = step_tokens});
    for (int round = 0; round < 2; ++round) {  // The second could find all of it in the cache.
      auto sink = std::make_shared<WaitingSink>();
      GenerationRequest request =
          Plain{.prompt = prompt, .sampling = {.top_logprobs = 1}}.request();
      request.score_prompt = true;
      ASSERT_TRUE(engine->submit(std::move(request), sink).ok());
      sink->wait();
      EXPECT_TRUE(sink->ids.empty());
      ASSERT_EQ(sink->scores.size() + 1, prompt.size());
      for (std::size_t i = 0; i < sink->scores.size(); ++i) {
        const std::span<const float> row = std::span(logits.values).subspan(i * vocab, vocab);
        double total = 0;
        for (const float logit : row) total += std::exp(static_cast<double>(logit));
        const auto [best, best_logprob] = sink->scores[i].second;
        const auto next = static_cast<std::size_t>(prompt[i + 1]);
        EXPECT_NEAR(static_cast<double>(sink->scores[i].first),
                    static_cast<double>(row[next]) - std::log(total), 1e-4);
        EXPECT_EQ(best, std::ranges::max_element(row) - row.begin());
        EXPECT_NEAR(static_cast<double>(best_logprob),
                    static_cast<double>(*std::ranges::max_element(row)) - std::log(total), 1e-4);
      }
    }
  }
}

TEST_F(EngineOnGpt2, SameRequestSameSeedSameIds) {
  std::int64_t preemptions = 0, cached = 0, with_others = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Plain> requests = random_requests(16, seed);
    std::vector<std::vector<TokenId>> expected;
    expected.reserve(requests.size());
    for (const Plain& plain : requests) expected.push_back(alone(plain));
    // Room for all; room for few, so that they are preempted; small steps, so that prompts come in
    // many chunks.
    for (const auto& [num_blocks, step_tokens] :
         {std::pair{64, 64}, std::pair{9, 64}, std::pair{7, 17}, std::pair{64, 19}}) {
      const std::unique_ptr<Engine> engine = start(num_blocks, {.step_tokens = step_tokens});
      for (int round = 0; round < 2; ++round) {  // The second finds the first one's prefixes.
        std::vector<std::shared_ptr<WaitingSink>> sinks;
        sinks.reserve(requests.size());
        for (const Plain& plain : requests) sinks.push_back(submit(*engine, plain));
        for (std::size_t i = 0; i < sinks.size(); ++i) {
          sinks[i]->wait();
          ASSERT_EQ(sinks[i]->ids, expected[i])
              << "request " << i << " with " << num_blocks << " blocks";
          preemptions += sinks[i]->end.preemptions;
          cached += sinks[i]->end.cached_tokens;
        }
      }
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.blocks_free, stats.blocks_total);
      with_others += stats.output_tokens > 2 * stats.steps ? 1 : 0;
    }
  }
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(cached, 1000);
  EXPECT_GT(with_others, 0);
}

// The reference draws, and its results come as late as a device's may: two steps are in flight.
TEST_F(EngineOnGpt2, TwoStepsInFlightChangeNoId) {
  const std::vector<Plain> requests = random_requests(12, 5);
  const auto run = [&](bool is_behind) {
    model::BrokenBackend device(compute::make_reference_backend({}));
    device.is_behind = is_behind;
    const auto loaded = model::load_golden_model("tests/golden/gpt2_tiny", device);
    model::RunnerOptions runner;
    runner.limits = {.num_blocks = 11};
    const std::unique_ptr<Engine> engine =
        Engine::start(model::TransformerRunner::make(loaded, device, runner).take(), {});
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (const Plain& plain : requests) sinks.push_back(submit(*engine, plain));
    std::vector<std::vector<TokenId>> ids;
    for (const std::shared_ptr<WaitingSink>& sink : sinks) {
      sink->wait();
      ids.push_back(sink->ids);
    }
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
    return ids;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(EngineOnGpt2, EmbeddingsAreThePooledRowsOfTransformers) {
  const std::vector<TokenId> prompt = golden_.ids("ids");
  const model::HostTensor rows = golden_.tensor("ln_f");  // (tokens, hidden)
  const auto dim = static_cast<std::size_t>(model_->config.hidden_dim);
  ASSERT_EQ(rows.values.size() % dim, 0U);
  const std::size_t count = rows.values.size() / dim;
  ASSERT_EQ(count, prompt.size());
  const std::unique_ptr<Engine> engine = start(8, {.max_running = 2, .step_tokens = 5});
  for (const Pooling pooling : {Pooling::Mean, Pooling::Last}) {
    auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(engine->submit(EmbeddingRequest{.prompt = prompt, .pooling = pooling}, sink).ok());
    sink->wait();
    ASSERT_EQ(sink->embedding.size(), dim);
    for (std::size_t i = 0; i < dim; ++i) {
      double expected = 0;
      for (std::size_t row = pooling == Pooling::Last ? count - 1 : 0; row < count; ++row) {
        expected += static_cast<double>(rows.values[row * dim + i]);
      }
      if (pooling == Pooling::Mean) expected /= static_cast<double>(count);
      EXPECT_NEAR(static_cast<double>(sink->embedding[i]), expected, 1e-4);
    }
  }
}

}  // namespace
}  // namespace llorch::engine
