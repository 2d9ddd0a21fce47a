// Tests only: requests as values with the answer they must get, a sink that writes down what it
// hears, and a host that gives up steps when told to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "engine/scripted_runner.h"

namespace llorch::engine {

inline constexpr TokenId kVocab = 50;

struct Score {
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Record {
  std::vector<Score> scores;  // of the prompt's tokens
  std::vector<TokenId> ids;
  int started = 0;
  int finished = 0;
  GenerationEnd end;
  std::optional<Result<std::vector<float>>> embedding;
};

class RecordingSink final : public GenerationSink, public EmbeddingSink {
 public:
  explicit RecordingSink(Record& record) : record_(record) {}

  void on_started(const GenerationStarted& /*started*/) override {
    ++record_.started;
    if (order != nullptr) order->push_back(&record_);
  }
  Verdict on_prompt_token(const ScoredToken& token) override {
    EXPECT_EQ(record_.started, 1);
    EXPECT_TRUE(record_.ids.empty()) << "the prompt comes before the output";
    EXPECT_EQ(token.index, std::ssize(record_.scores) + 1);
    record_.scores.push_back({token.id, token.logprob, {token.top.begin(), token.top.end()}});
    return Verdict::Continue;
  }
  Verdict on_token(const GeneratedToken& token) override {
    EXPECT_EQ(record_.started, 1);
    EXPECT_EQ(record_.finished, 0);
    EXPECT_EQ(token.index, std::ssize(record_.ids));
    record_.ids.push_back(token.id);
    if (heard) heard(token.id);
    return std::ssize(record_.ids) == verdict_at ? verdict : Verdict::Continue;
  }
  void on_finished(const GenerationEnd& end) override {
    ++record_.finished;
    record_.end = end;
  }
  void on_finished(Result<std::vector<float>> embedding) override {
    ++record_.finished;
    record_.embedding = std::move(embedding);
  }

  std::vector<Record*>* order = nullptr;
  std::function<void(TokenId)> heard;
  std::int64_t verdict_at = -1;
  Verdict verdict = Verdict::Continue;

 private:
  Record& record_;
};

// Gives up steps and cancels when told to.
class ScriptedHost final : public StepHost {
 public:
  const std::atomic<bool>* step_begins(std::span<const StepShare> shares) override {
    last_shares.assign(shares.begin(), shares.end());
    if (num_in_flight++ == 0) abort = false;
    if (abort_next) abort = true;
    return &abort;
  }
  void step_ended(std::span<const StepShare> /*shares*/, bool aborted,
                  std::vector<GenerationId>& cancelled) override {
    --num_in_flight;
    num_aborted += aborted ? 1 : 0;
    cancelled.insert(cancelled.end(), cancel_next.begin(), cancel_next.end());
    cancel_next.clear();
  }
  void report(const EngineStats& now, std::span<const GenerationId> ended) override {
    stats = now;
    num_ended += std::ssize(ended);
  }

  std::atomic<bool> abort = false;
  bool abort_next = false;
  std::vector<GenerationId> cancel_next;
  std::vector<StepShare> last_shares;
  EngineStats stats;
  std::int64_t num_aborted = 0;
  std::int64_t num_in_flight = 0;
  std::int64_t num_ended = 0;
};

inline std::uint64_t digest_of(std::span<const TokenId> tokens) {
  std::uint64_t digest = 0;
  for (const TokenId token : tokens) digest = extend_digest(digest, token);
  return digest;
}

inline void fill_logits(std::span<float> logits, std::uint64_t digest) {
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = digest_value(digest, i);
}

struct Plain {  // A request as a value.
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = 0;
  std::vector<TokenId> end_ids = {};
  SamplingParams sampling = {};
  bool score_prompt = false;
  std::uint64_t salt = 0;
  std::vector<TokenId> told = {};

  GenerationRequest request() const {
    GenerationRequest request;
    request.told = told;
    request.cache_salt = salt;
    request.score_prompt = score_prompt;
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.end_ids = end_ids;
    request.sampling = sampling;
    return request;
  }

  // What must come out, and whether it ends with an end id.
  std::pair<std::vector<TokenId>, bool> expected() const {
    Sampler sampler(kVocab);
    TokenCounts counts(prompt, max_tokens);
    std::vector<TokenId> tokens = prompt;
    std::vector<TokenId> output;
    std::vector<float> logits(kVocab);
    while (std::ssize(output) < max_tokens) {
      fill_logits(logits, digest_of(tokens));
      const TokenId id = sampler
                             .sample({.logits = logits,
                                      .params = sampling,
                                      .position = static_cast<std::int32_t>(tokens.size()),
                                      .counts = &counts})
                             ->id;
      if (std::ranges::find(end_ids, id) != end_ids.end()) return {output, true};
      counts.add(id);
      tokens.push_back(id);
      output.push_back(id);
    }
    return {output, false};
  }

  // That these are the scores of the first tokens of the prompt, by plain arithmetic.
  void check_scores(std::span<const Score> scores) const {
    ASSERT_LE(scores.size() + 1, prompt.size());
    std::vector<float> logits(kVocab);
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "token " << i + 1 << " of the prompt");
      digest = extend_digest(digest, prompt[i]);
      fill_logits(logits, digest);
      double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit));
      const auto logprob = [&](TokenId id) {
        return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(total);
      };
      EXPECT_EQ(scores[i].id, prompt[i + 1]);
      EXPECT_NEAR(static_cast<double>(scores[i].logprob), logprob(scores[i].id), 1e-5);
      ASSERT_EQ(std::ssize(scores[i].top), *sampling.top_logprobs);
      std::vector<float> sorted = logits;
      std::ranges::sort(sorted, std::greater());
      for (std::size_t k = 0; k < scores[i].top.size(); ++k) {
        const TokenLogprob& top = scores[i].top[k];
        EXPECT_EQ(logits[static_cast<std::size_t>(top.id)], sorted[k]);
        EXPECT_NEAR(static_cast<double>(top.logprob), logprob(top.id), 1e-5);
      }
    }
  }
};

// Lets only even ids follow, and writes down what it hears.
class EvenIds final : public TokenConstraint {
 public:
  explicit EvenIds(std::vector<TokenId>& heard) : heard_(heard) {}
  void mask(std::span<float> logits) override {
    for (std::size_t i = 1; i < logits.size(); i += 2)
      logits[i] = -std::numeric_limits<float>::infinity();
  }
  void allow(std::span<std::uint32_t> ids) override { std::ranges::fill(ids, 0x55555555U); }
  void accept(TokenId id) override { heard_.push_back(id); }

 private:
  std::vector<TokenId>& heard_;
};

inline std::unique_ptr<Sequence> make_sequence(GenerationId id, const Plain& plain,
                                               std::shared_ptr<GenerationSink> sink) {
  return std::make_unique<Sequence>(id, plain.request(), std::move(sink), Clock::now());
}

// Single behaviours, with one engine of 16-token blocks.
class CoreTest : public testing::Test {
 protected:
  void make(std::int32_t num_blocks, EngineOptions options = {}) {
    make(model::RunnerLimits{.num_blocks = num_blocks}, options);
  }
  void make(const model::RunnerLimits& limits, EngineOptions options = {}) {
    auto runner = std::make_unique<ScriptedRunner>(
        ScriptedRunner::Options{.limits = limits, .vocab_size = kVocab, .context_length = 1000});
    runner_ = runner.get();
    options.clock = &clock_;
    core_ = std::make_unique<EngineCore>(std::move(runner), options);
  }
  Record& add(const Plain& plain) {
    records_.push_back(std::make_unique<Record>());
    records_.back()->ids = plain.told;
    sinks_.push_back(std::make_shared<RecordingSink>(*records_.back()));
    core_->add(make_sequence(records_.size(), plain, sinks_.back()));
    return *records_.back();
  }
  void run() {
    for (int steps = 0; !core_->idle(); ++steps) {
      ASSERT_LT(steps, 10000);
      core_->step(host_);
    }
  }
  // Two that do not both fit into 6 blocks come out as they would alone. The one that gave way.
  const Record& run_the_preempted() {
    const Plain old_one = {.prompt = prompt(30), .max_tokens = 60, .sampling = {.seed = 1}};
    const Plain young_one = {.prompt = prompt(28, 9), .max_tokens = 60, .sampling = {.seed = 2}};
    const Record& first = add(old_one);
    const Record& second = add(young_one);
    run();
    EXPECT_EQ(first.end.preemptions, 0);
    EXPECT_GT(second.end.preemptions, 0);
    EXPECT_EQ(first.ids, old_one.expected().first);
    EXPECT_EQ(second.ids, young_one.expected().first);
    return second;
  }
  static std::vector<TokenId> prompt(std::int32_t length, TokenId start = 0) {
    std::vector<TokenId> tokens;
    tokens.reserve(static_cast<std::size_t>(length));
    for (std::int32_t i = 0; i < length; ++i) tokens.push_back((start + i * i) % kVocab);
    return tokens;
  }

  base::ManualClock clock_;
  ScriptedRunner* runner_ = nullptr;
  std::unique_ptr<EngineCore> core_;
  ScriptedHost host_;
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
};

}  // namespace llorch::engine
