// Random schedules against an oracle: what a request must say is computed beforehand, token by
// token and without a cache, and no neighbour, hit, preemption or aborted step may change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/core_harness.h"

namespace llorch::engine {
namespace {

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
  std::int64_t num_scored() const { return num_scored_; }
  std::int64_t num_overlapped() const { return runner_->num_overlapped; }
  std::int64_t num_edited() const { return runner_->num_edited; }

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
                                  .block_tokens = chance(2) ? 4 : 16,
                                  .steps_in_flight = chance(2) ? 2 : 1,
                                  .finds_argmax = chance(4) ? false : true};
    limits.draws = limits.finds_argmax && chance(2);
    // Now and then room for some of the rows alone.
    if (limits.draws && chance(2)) limits.logit_changes = chance(3) ? 40 : 10'000;
    auto runner = std::make_unique<ScriptedRunner>(
        ScriptedRunner::Options{.limits = limits, .vocab_size = kVocab, .context_length = 300});
    runner->is_late = chance(2);
    runner_ = runner.get();
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
    if (chance(6)) {
      for (int i = between(1, 5); i > 0; --i)
        plain.sampling.logit_bias.emplace_back(between(0, kVocab - 1), chance(2) ? 3.5F : -0.25F);
    }
    if (chance(5)) {
      plain.score_prompt = true;
      plain.sampling.top_logprobs = between(0, 3);
      if (chance(3)) plain.max_tokens = 0;
    }
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
          sink, Clock::now()));
    } else {
      GenerationRequest generation = request.plain.request();
      generation.deadline = deadline;
      core_->add(std::make_unique<Sequence>(index + 1, std::move(generation), sink, Clock::now()));
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
    request.plain.check_scores(record.scores);
    if (reason != FinishReason::Cancelled && request.plain.score_prompt) {
      ASSERT_EQ(record.scores.size() + 1, request.plain.prompt.size());
      num_scored_ += std::ssize(record.scores);
    }
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
  ScriptedRunner* runner_ = nullptr;
  std::unique_ptr<EngineCore> core_;
  ScriptedHost host_;
  std::vector<Request> requests_;
  std::vector<Record> records_;
  std::vector<Record*> started_;
  std::int64_t total_tokens_ = 0;
  std::int64_t num_compared_ = 0;
  std::int64_t num_scored_ = 0;
};

TEST(EngineCore, SaysTheSameWhateverTheSchedule) {
  std::int64_t preemptions = 0, cached = 0, compared = 0, scored = 0, overlapped = 0, edited = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule schedule(seed);
    schedule.run();
    if (testing::Test::HasFailure()) return;
    preemptions += schedule.preemptions();
    cached += schedule.cached_tokens();
    compared += schedule.num_compared();
    scored += schedule.num_scored();
    overlapped += schedule.num_overlapped();
    edited += schedule.num_edited();
  }
  // The schedules must have met what they are about.
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(cached, 10000);
  EXPECT_GT(compared, 100000);
  EXPECT_GT(scored, 10000);
  EXPECT_GT(overlapped, 1000);
  EXPECT_GT(edited, 1000);
}

}  // namespace
}  // namespace llorch::engine
