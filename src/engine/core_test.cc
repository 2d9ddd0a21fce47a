// Random schedules against an oracle: what a request must say is computed beforehand, token by
// token and without a cache, and no neighbour, hit, preemption or aborted step may change it.
#include "engine/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/scripted_runner.h"

namespace llorch::engine {
namespace {

constexpr TokenId kVocab = 50;

struct Record {
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
  Verdict on_token(const GeneratedToken& token) override {
    EXPECT_EQ(record_.started, 1);
    EXPECT_EQ(record_.finished, 0);
    EXPECT_EQ(token.index, std::ssize(record_.ids));
    record_.ids.push_back(token.id);
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
    abort = abort_next;
    return &abort;
  }
  void step_ended(bool aborted, std::vector<GenerationId>& cancelled) override {
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
  std::int64_t num_ended = 0;
};

std::uint64_t digest_of(std::span<const TokenId> tokens) {
  std::uint64_t digest = 0;
  for (const TokenId token : tokens) digest = extend_digest(digest, token);
  return digest;
}

struct Plain {  // A request as a value.
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = 0;
  std::vector<TokenId> end_ids = {};
  SamplingParams sampling = {};

  GenerationRequest request() const {
    GenerationRequest request;
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
      const std::uint64_t digest = digest_of(tokens);
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = digest_value(digest, i);
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
};

std::unique_ptr<Sequence> make_sequence(GenerationId id, const Plain& plain,
                                        std::shared_ptr<GenerationSink> sink) {
  return std::make_unique<Sequence>(id, plain.request(), std::move(sink));
}

// One random schedule. Everything is a function of the seed.
class Schedule {
 public:
  explicit Schedule(std::uint32_t seed) : random_(seed), core_(make_core()) {}

  void run() {
    const std::int32_t num_requests = between(1, 24);
    records_.resize(static_cast<std::size_t>(num_requests));
    for (std::int32_t i = 0; i < num_requests; ++i) make_request(i);
    std::size_t next = 0;
    std::int64_t steps = 0;
    while (next < requests_.size() || !core_->idle()) {
      while (next < requests_.size() && (core_->idle() || chance(5))) submit(next++);
      host_.abort_next = chance(4) && chance(4);
      if (chance(20) && next > 0) host_.cancel_next = {pick_live(next)};
      if (chance(40) && next > 0) cancel(pick_live(next));
      core_->step(host_);
      ASSERT_LE(host_.stats.running, core_->options().max_running);
      std::int32_t rows = 0;
      for (const StepShare& share : host_.last_shares) rows += share.rows;
      ASSERT_LE(rows, core_->options().step_tokens);
      // The oldest has a row in every step that is not given up, and never gives way.
      ASSERT_LE(++steps, total_tokens_ + host_.num_aborted + num_requests) << "somebody starves";
    }
    check();
  }

  std::int64_t preemptions() const { return host_.stats.preemptions; }
  std::int64_t cached_tokens() const { return host_.stats.cached_tokens; }
  std::int64_t num_compared() const { return num_compared_; }

 private:
  struct Request {
    Plain plain;
    bool embed = false;
    Pooling pooling = Pooling::Mean;
    std::int64_t stop_at = -1;
    bool cancelled = false;
    bool late = false;
  };

  std::int32_t between(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool chance(std::int32_t one_in) { return between(1, one_in) == 1; }
  GenerationId pick_live(std::size_t next) {
    const auto index = static_cast<std::size_t>(between(0, static_cast<std::int32_t>(next) - 1));
    requests_[index].cancelled = true;
    return index + 1;
  }
  void cancel(GenerationId id) { core_->cancel(id); }

  std::unique_ptr<EngineCore> make_core() {
    model::RunnerLimits limits = {.rows = between(4, 64),
                                  .logit_rows = between(4, 16),
                                  .sequences = between(1, 8),
                                  .num_blocks = between(8, 40),
                                  .block_tokens = chance(2) ? 4 : 16};
    auto runner = std::make_unique<ScriptedRunner>(
        ScriptedRunner::Options{.limits = limits, .vocab_size = kVocab, .context_length = 300});
    return std::make_unique<EngineCore>(std::move(runner),
                                        EngineOptions{.max_running = between(1, 16),
                                                      .step_tokens = between(1, 64),
                                                      .prefix_cache = !chance(4)});
  }

  void make_request(std::int32_t index) {
    const std::int32_t room = core_->max_sequence_tokens();
    Request request;
    Plain& plain = request.plain;
    const std::int32_t length = between(1, std::min(room - 1, chance(4) ? 200 : 40));
    // Few beginnings, so that prefixes are shared, and now and then the very same prompt.
    if (index > 0 && chance(3)) {
      plain.prompt = requests_[static_cast<std::size_t>(between(0, index - 1))].plain.prompt;
    } else {
      const std::int32_t family = between(0, 2);
      for (std::int32_t i = 0; i < length; ++i) {
        plain.prompt.push_back(i < 30 ? (family * 7 + i) % kVocab : between(0, kVocab - 1));
      }
    }
    plain.max_tokens =
        between(1, std::min(60, room - static_cast<std::int32_t>(plain.prompt.size())));
    if (chance(3)) plain.end_ids = {between(0, kVocab - 1), between(0, kVocab - 1)};
    plain.sampling = {.temperature = chance(3) ? 0.0F : 0.8F,
                      .top_k = chance(3) ? 5 : 0,
                      .top_p = chance(3) ? 0.9F : 1.0F,
                      .repetition_penalty = chance(3) ? 1.3F : 1.0F,
                      .frequency_penalty = chance(5) ? 0.5F : 0.0F,
                      .seed = random_()};
    request.embed = chance(6);
    request.pooling = chance(2) ? Pooling::Mean : Pooling::Last;
    if (chance(6)) request.stop_at = between(1, 20);
    request.late = chance(20);
    total_tokens_ += std::ssize(plain.prompt) + plain.max_tokens;
    requests_.push_back(std::move(request));
  }

  void submit(std::size_t index) {
    const Request& request = requests_[index];
    auto sink = std::make_shared<RecordingSink>(records_[index]);
    sink->order = &started_;
    sink->verdict_at = request.stop_at;
    sink->verdict = Verdict::Stop;
    const Clock::time_point deadline = request.late ? Clock::now() : Clock::time_point::max();
    if (request.embed) {
      core_->add(std::make_unique<Sequence>(
          index + 1,
          EmbeddingRequest{
              .prompt = request.plain.prompt, .pooling = request.pooling, .deadline = deadline},
          sink));
    } else {
      GenerationRequest generation = request.plain.request();
      generation.deadline = deadline;
      core_->add(std::make_unique<Sequence>(index + 1, std::move(generation), sink));
    }
  }

  void check() {
    EXPECT_EQ(host_.stats.blocks_free, host_.stats.blocks_total);
    EXPECT_EQ(host_.stats.running, 0);
    EXPECT_EQ(host_.stats.waiting, 0);
    EXPECT_EQ(host_.num_ended, std::ssize(requests_));
    EXPECT_TRUE(std::ranges::is_sorted(started_)) << "first come, first served";
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(records_[i].finished, 1);
      requests_[i].embed ? check_embedding(requests_[i], records_[i])
                         : check_generation(requests_[i], records_[i]);
    }
  }

  void check_generation(const Request& request, const Record& record) {
    const FinishReason reason = record.end.reason;
    EXPECT_EQ(record.end.tokens_out, std::ssize(record.ids));
    EXPECT_EQ(record.end.prompt_tokens, std::ssize(request.plain.prompt));
    if (request.late) {
      EXPECT_TRUE(reason == FinishReason::TimedOut || request.cancelled);
      EXPECT_TRUE(record.ids.empty());
      return;
    }
    auto [expected, ends] = request.plain.expected();
    if (request.stop_at > 0 && request.stop_at <= std::ssize(expected)) {
      expected.resize(static_cast<std::size_t>(request.stop_at));
      EXPECT_TRUE(reason == FinishReason::Stopped || request.cancelled);
    } else {
      EXPECT_TRUE(reason == (ends ? FinishReason::EndToken : FinishReason::MaxTokens) ||
                  request.cancelled);
    }
    if (reason == FinishReason::Cancelled) {
      ASSERT_TRUE(request.cancelled);
      ASSERT_LE(record.ids.size(), expected.size());
      expected.resize(record.ids.size());
    }
    ASSERT_EQ(record.ids, expected);
    num_compared_ += std::ssize(expected);
  }

  void check_embedding(const Request& request, const Record& record) {
    if (request.late || !record.embedding->ok()) {
      ASSERT_FALSE(record.embedding->ok());
      EXPECT_TRUE(request.late || request.cancelled);
      return;
    }
    std::vector<double> sum(8);
    std::uint64_t digest = 0;
    for (const TokenId token : request.plain.prompt) {
      digest = extend_digest(digest, token);
      if (request.pooling == Pooling::Last) std::ranges::fill(sum, 0);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += static_cast<double>(digest_value(digest, i));
    }
    if (request.pooling == Pooling::Mean) {
      for (double& value : sum) value /= static_cast<double>(request.plain.prompt.size());
    }
    const std::vector<float>& pooled = record.embedding->value();
    ASSERT_EQ(pooled, std::vector<float>(sum.begin(), sum.end()));
  }

  std::mt19937 random_;
  std::unique_ptr<EngineCore> core_;
  ScriptedHost host_;
  std::vector<Request> requests_;
  std::vector<Record> records_;
  std::vector<Record*> started_;
  std::int64_t total_tokens_ = 0;
  std::int64_t num_compared_ = 0;
};

TEST(EngineCore, SaysTheSameWhateverTheSchedule) {
  std::int64_t preemptions = 0, cached = 0, compared = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule schedule(seed);
    schedule.run();
    if (testing::Test::HasFailure()) return;
    preemptions += schedule.preemptions();
    cached += schedule.cached_tokens();
    compared += schedule.num_compared();
  }
  // The schedules must have met what they are about.
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(cached, 10000);
  EXPECT_GT(compared, 100000);
}

// The rest pins single behaviours, with one engine of 16-token blocks.
class CoreTest : public testing::Test {
 protected:
  void make(std::int32_t num_blocks, EngineOptions options = {}) {
    auto runner = std::make_unique<ScriptedRunner>(ScriptedRunner::Options{
        .limits = {.num_blocks = num_blocks}, .vocab_size = kVocab, .context_length = 1000});
    runner_ = runner.get();
    core_ = std::make_unique<EngineCore>(std::move(runner), options);
  }
  Record& add(const Plain& plain) {
    records_.push_back(std::make_unique<Record>());
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
  static std::vector<TokenId> prompt(std::int32_t length, TokenId start = 0) {
    std::vector<TokenId> tokens;
    tokens.reserve(static_cast<std::size_t>(length));
    for (std::int32_t i = 0; i < length; ++i) tokens.push_back((start + i * i) % kVocab);
    return tokens;
  }

  ScriptedRunner* runner_ = nullptr;
  std::unique_ptr<EngineCore> core_;
  ScriptedHost host_;
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
};

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
  const Plain old_one = {.prompt = prompt(30), .max_tokens = 60, .sampling = {.seed = 1}};
  const Plain young_one = {.prompt = prompt(28, 9), .max_tokens = 60, .sampling = {.seed = 2}};
  const Record& first = add(old_one);
  const Record& second = add(young_one);
  run();
  EXPECT_EQ(first.end.preemptions, 0);
  EXPECT_EQ(second.end.preemptions, 1);
  EXPECT_EQ(host_.stats.preemptions, 1);
  EXPECT_EQ(second.started, 1);
  EXPECT_EQ(first.ids, old_one.expected().first);
  EXPECT_EQ(second.ids, young_one.expected().first);
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
  struct Even final : TokenConstraint {
    explicit Even(std::vector<TokenId>& target) : heard(target) {}
    void mask(std::span<float> logits) override {
      for (std::size_t i = 1; i < logits.size(); i += 2) {
        logits[i] = -std::numeric_limits<float>::infinity();
      }
    }
    void accept(TokenId id) override { heard.push_back(id); }
    std::vector<TokenId>& heard;
  };
  make(6);
  add({.prompt = prompt(30), .max_tokens = 60});
  std::vector<TokenId> heard;
  Record record;
  GenerationRequest request = Plain{.prompt = prompt(28, 9), .max_tokens = 60}.request();
  request.constraint = std::make_unique<Even>(heard);
  core_->add(
      std::make_unique<Sequence>(77, std::move(request), std::make_shared<RecordingSink>(record)));
  run();
  EXPECT_GT(record.end.preemptions, 0);
  EXPECT_FALSE(heard.empty());
  EXPECT_EQ(heard, record.ids);
  for (const TokenId id : record.ids) EXPECT_EQ(id % 2, 0);
}

TEST_F(CoreTest, ADeadlineEndsWhatRunsAndWhatWaits) {
  make(20, {.max_running = 1});
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(2);
  std::vector<Record> records(2);
  for (std::size_t i = 0; i < 2; ++i) {
    GenerationRequest request = Plain{.prompt = prompt(5), .max_tokens = 200}.request();
    request.deadline = deadline;
    core_->add(std::make_unique<Sequence>(i + 1, std::move(request),
                                          std::make_shared<RecordingSink>(records[i])));
  }
  runner_->during_step = [&](const model::BatchPlan& plan) {
    while (plan.rows[0].position == 9 && Clock::now() < deadline) {
    }
  };
  run();
  EXPECT_EQ(records[0].end.reason, FinishReason::TimedOut);
  EXPECT_LE(records[0].end.tokens_out, 6);
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
