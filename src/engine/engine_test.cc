// The engine with its thread. Tests wait for events, never for time.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "base/mutex.h"
#include "engine/scripted_runner.h"

namespace llorch::engine {
namespace {

// One thread says how far it has come, others wait for it.
class Signal {
 public:
  void raise() {
    const base::MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait(int count = 1) {
    const base::MutexLock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  int count_ LLORCH_GUARDED_BY(mutex_) = 0;
};

class WaitingSink final : public GenerationSink, public EmbeddingSink {
 public:
  void on_started(const GenerationStarted& /*started*/) override { started.raise(); }
  Verdict on_token(const GeneratedToken& token) override {
    ids.push_back(token.id);
    tokens.raise();
    return Verdict::Continue;
  }
  void on_finished(const GenerationEnd& ended) override {
    end = ended;
    finished.raise();
  }
  void on_finished(Result<std::vector<float>> result) override {
    embedding = std::move(result);
    finished.raise();
  }

  Signal started, tokens, finished;
  std::vector<TokenId> ids;  // read after finished
  GenerationEnd end;
  std::optional<Result<std::vector<float>>> embedding;
};

GenerationRequest make_request(std::int32_t prompt, std::int32_t max_tokens,
                               std::uint64_t seed = 0) {
  GenerationRequest request;
  for (std::int32_t i = 0; i < prompt; ++i) request.prompt.push_back((i * i + 3) % 50);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

class EngineTest : public testing::Test {
 protected:
  using Step = std::function<void(const model::BatchPlan&)>;
  void start(
      EngineOptions options = {}, Step during_step = [](const model::BatchPlan&) {}) {
    auto runner = std::make_unique<ScriptedRunner>(
        ScriptedRunner::Options{.limits = {.num_blocks = 200}, .context_length = 2000});
    runner->during_step = std::move(during_step);
    engine_ = Engine::start(std::move(runner), options);
  }
  std::pair<GenerationId, std::shared_ptr<WaitingSink>> submit(GenerationRequest request) {
    auto sink = std::make_shared<WaitingSink>();
    Result<GenerationId> id = engine_->submit(std::move(request), sink);
    EXPECT_TRUE(id.ok());
    return {*id, sink};
  }
  std::unique_ptr<Engine> engine_;
};

// Blocks a step until the engine gives it up.
void until_aborted(const model::BatchPlan& plan) {
  while (!plan.abort->load()) std::this_thread::yield();
}

TEST_F(EngineTest, SaysTheSameAloneAndInABatchOfSixteen) {
  start();
  const auto alone = submit(make_request(40, 30, 7)).second;
  alone->finished.wait();
  start({.prefix_cache = false});
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (std::uint64_t i = 0; i < 16; ++i) {
    sinks.push_back(
        submit(make_request(i == 9 ? 40 : 11 + static_cast<std::int32_t>(i), 30, i == 9 ? 7 : i))
            .second);
  }
  for (const auto& sink : sinks) sink->finished.wait();
  EXPECT_EQ(alone->ids.size(), 30U);
  EXPECT_EQ(sinks[9]->ids, alone->ids);
  EXPECT_NE(sinks[8]->ids, alone->ids);
}

TEST_F(EngineTest, TellsSinceWhenAStepRuns) {
  Signal entered, looked;
  start({}, [&](const model::BatchPlan&) {
    entered.raise();
    looked.wait();
  });
  EXPECT_EQ(engine_->stats().step_began_at, Clock::time_point{});
  const Clock::time_point before = Clock::now();
  const auto sink = submit(make_request(4, 1)).second;
  entered.wait();
  const EngineStats stats = engine_->stats();
  EXPECT_GE(stats.step_began_at, before);
  EXPECT_LE(stats.step_began_at, Clock::now());
  looked.raise();
  sink->finished.wait();
  EXPECT_EQ(engine_->stats().step_began_at, Clock::time_point{});
}

class CancelTest : public EngineTest {
 protected:
  // Steps with more rows than this are chunks of a long prompt.
  static constexpr std::size_t kChunk = 20;
  static GenerationRequest short_request() { return make_request(10, 50); }
  static GenerationRequest long_request() { return make_request(300, 10); }
};

TEST_F(CancelTest, APrefillGivesItsStepUpAndTheOthersGoOn) {
  Signal submitted, entered;
  start({}, [&](const model::BatchPlan& plan) {
    if (plan.rows[0].position == 15) submitted.wait();
    if (plan.rows.size() <= kChunk) return;
    entered.raise();
    until_aborted(plan);
  });
  const auto other = submit(short_request()).second;
  const auto [id, sink] = submit(long_request());
  submitted.raise();
  entered.wait();
  engine_->cancel(id);
  sink->finished.wait();
  EXPECT_EQ(sink->end.reason, FinishReason::Cancelled);
  other->finished.wait();
  EXPECT_EQ(other->end.reason, FinishReason::MaxTokens);
  EXPECT_EQ(other->ids.size(), 50U);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.blocks_free, stats.blocks_total);
}

TEST_F(CancelTest, OneDecoderOfTwoLeavesTheStepAlone) {
  Signal submitted, entered, go;
  std::atomic<bool> aborted = false;
  start({.prefix_cache = false}, [&](const model::BatchPlan& plan) {
    if (plan.rows[0].position == 15) submitted.wait();
    if (plan.block_tables.size() < 2 || plan.rows.size() > 2) return;
    entered.raise();
    go.wait();
    aborted = aborted || plan.abort->load();
  });
  const auto other = submit(short_request()).second;
  const auto [id, sink] = submit(make_request(30, 1000, 3));
  submitted.raise();
  entered.wait();
  engine_->cancel(id);
  go.raise();
  sink->finished.wait();
  EXPECT_EQ(sink->end.reason, FinishReason::Cancelled);
  other->finished.wait();
  EXPECT_EQ(other->ids.size(), 50U);
  EXPECT_FALSE(aborted);
}

TEST_F(CancelTest, AStepThatNobodyWantsIsGivenUp) {
  Signal submitted, entered;
  start({.prefix_cache = false}, [&](const model::BatchPlan& plan) {
    if (plan.rows[0].position == 15) submitted.wait();
    if (plan.block_tables.size() < 2 || plan.rows.size() > 2) return;
    entered.raise();
    until_aborted(plan);
  });
  const auto [first_id, first] = submit(short_request());
  const auto [second_id, second] = submit(make_request(30, 1000, 3));
  submitted.raise();
  entered.wait();
  engine_->cancel(first_id);
  engine_->cancel(first_id);  // Twice is once.
  engine_->cancel(second_id);
  first->finished.wait();
  second->finished.wait();
  EXPECT_EQ(first->end.reason, FinishReason::Cancelled);
  EXPECT_EQ(second->end.reason, FinishReason::Cancelled);
}

TEST_F(CancelTest, TheStepAfterAnAbortedOneRunsToItsEnd) {
  Signal submitted, first_chunk, second_chunk, go;
  std::atomic<int> chunks = 0;
  std::atomic<bool> second_aborted = true;
  start({.max_running = 2}, [&](const model::BatchPlan& plan) {
    if (plan.rows[0].position == 15) submitted.wait();
    if (plan.rows.size() <= kChunk) return;
    if (++chunks == 1) {
      first_chunk.raise();
      until_aborted(plan);
    } else if (chunks == 2) {
      second_chunk.raise();
      go.wait();
      second_aborted = plan.abort->load();
    }
  });
  const auto other = submit(short_request()).second;
  const auto [first_id, first] = submit(long_request());
  const auto [second_id, second] = submit(long_request());
  submitted.raise();
  first_chunk.wait();
  engine_->cancel(first_id);
  second_chunk.wait();
  engine_->cancel(second_id);
  go.raise();
  second->finished.wait();
  EXPECT_FALSE(second_aborted);
  EXPECT_EQ(second->end.reason, FinishReason::Cancelled);
  other->finished.wait();
  EXPECT_EQ(other->end.reason, FinishReason::MaxTokens);
}

TEST_F(CancelTest, UnknownAndFinishedIdsAreIgnored) {
  start();
  engine_->cancel(12345);
  const auto [id, sink] = submit(short_request());
  sink->finished.wait();
  engine_->cancel(id);
  const auto next = submit(short_request()).second;
  next->finished.wait();
  EXPECT_EQ(next->end.reason, FinishReason::MaxTokens);
}

TEST_F(EngineTest, StopEndsWhatRunsAndWhatWaits) {
  Signal entered;
  start({.max_running = 1}, [&](const model::BatchPlan& plan) {
    entered.raise();
    until_aborted(plan);
  });
  const auto running = submit(make_request(100, 10)).second;
  const auto waiting = submit(make_request(10, 10)).second;
  entered.wait();
  std::thread second_stop([&] { engine_->stop(); });
  engine_->stop();
  second_stop.join();
  for (const auto& cut_off : {running, waiting}) {
    EXPECT_EQ(cut_off->end.reason, FinishReason::Cancelled);
    ASSERT_TRUE(cut_off->end.error);
    EXPECT_EQ(cut_off->end.error->code, ErrorCode::Unavailable) << "may be tried again";
    EXPECT_NE(cut_off->end.error->message.find("is stopping"), std::string::npos);
  }
  auto sink = std::make_shared<WaitingSink>();
  const Result<GenerationId> late = engine_->submit(make_request(1, 1), sink);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::Unavailable);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.blocks_free, stats.blocks_total);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  engine_->stop();
}

TEST_F(EngineTest, RefusesWhatIsBeyondTheQueue) {
  Signal entered, go;
  start({.max_running = 1, .max_waiting = 2}, [&](const model::BatchPlan&) {
    entered.raise();
    go.wait();
  });
  const auto running = submit(make_request(5, 2)).second;
  entered.wait();
  const auto [cancelled_id, cancelled] = submit(make_request(5, 2));
  const auto waiting = submit(make_request(5, 2)).second;
  auto sink = std::make_shared<WaitingSink>();
  const Result<GenerationId> refused = engine_->submit(make_request(5, 2), sink);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::QueueFull);
  // The numbers do not wait for the step.
  EXPECT_EQ(engine_->stats().waiting, 2);
  EXPECT_EQ(engine_->stats().running, 1);
  engine_->cancel(cancelled_id);
  go.raise();
  for (const auto& one : {running, cancelled, waiting}) one->finished.wait();
  EXPECT_EQ(cancelled->end.reason, FinishReason::Cancelled);
  EXPECT_EQ(waiting->end.reason, FinishReason::MaxTokens);
  EXPECT_EQ(engine_->stats().waiting, 0);
}

// Free slots count at once, whatever the thread has looked at: here it is kept from looking.
TEST_F(EngineTest, TakesAsManyAsRunAndWait) {
  for (const auto& [slots, queue] : {std::pair{8, 1}, std::pair{16, 64}}) {
    Signal entered, go;
    start({.max_running = slots, .max_waiting = queue}, [&](const model::BatchPlan&) {
      entered.raise();
      go.wait();
    });
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    sinks.push_back(submit(make_request(5, 1)).second);
    entered.wait();
    for (int i = 1; i < slots + queue; ++i) sinks.push_back(submit(make_request(5, 1)).second);
    auto sink = std::make_shared<WaitingSink>();
    const Result<GenerationId> refused = engine_->submit(make_request(5, 1), sink);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::QueueFull);
    go.raise();
    for (const auto& one : sinks) one->finished.wait();
    // By the time that a sink hears of the end, its place is free.
    submit(make_request(5, 1)).second->finished.wait();
  }
}

TEST_F(EngineTest, TakesAGroupAsAWhole) {
  Signal entered, go;
  start({.max_running = 2, .max_waiting = 2}, [&](const model::BatchPlan&) {
    entered.raise();
    go.wait();
  });
  const auto group = [](std::size_t count) {
    std::vector<Engine::Submission> out(count);
    for (Engine::Submission& one : out) one = {make_request(5, 2), std::make_shared<WaitingSink>()};
    return out;
  };
  const auto running = submit(make_request(5, 2)).second;
  entered.wait();
  EXPECT_EQ(engine_->submit(group(4)).error().code, ErrorCode::QueueFull);
  EXPECT_EQ(engine_->submit(group(5)).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(engine_->stats().waiting, 0);
  const Result<std::vector<GenerationId>> taken = engine_->submit(group(3));
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken->size(), 3U);
  auto spoilt = group(1);
  spoilt[0].request.prompt.clear();
  EXPECT_EQ(engine_->submit(std::move(spoilt)).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(engine_->stats().waiting, 3);
  go.raise();
  running->finished.wait();
  engine_->stop();  // before the signals go
}

// A sink that throws wherever it is told to.
class ThrowingSink final : public GenerationSink {
 public:
  enum class At : std::uint8_t { Started, Token, Finished };
  explicit ThrowingSink(At at) : at_(at) {}
  void on_started(const GenerationStarted& /*started*/) override { maybe_throw(At::Started); }
  Verdict on_token(const GeneratedToken& /*token*/) override {
    maybe_throw(At::Token);
    return Verdict::Continue;
  }
  void on_finished(const GenerationEnd& ended) override {
    end = ended;
    finished.raise();
    maybe_throw(At::Finished);
  }

  Signal finished;
  GenerationEnd end;

 private:
  void maybe_throw(At here) const {
    if (here == at_) throw std::bad_alloc();
  }
  const At at_;
};

TEST_F(EngineTest, ASinkThatThrowsFailsItsGenerationAlone) {
  using At = ThrowingSink::At;
  start();
  const auto other = submit(make_request(5, 60)).second;
  for (const At at : {At::Started, At::Token, At::Finished}) {
    auto sink = std::make_shared<ThrowingSink>(at);
    ASSERT_TRUE(engine_->submit(make_request(5, 4), sink).ok());
    sink->finished.wait();
    if (at == At::Finished) continue;
    EXPECT_EQ(sink->end.reason, FinishReason::Failed);
    ASSERT_TRUE(sink->end.error);
    EXPECT_EQ(sink->end.error->code, ErrorCode::OutOfMemory);
  }
  other->finished.wait();
  EXPECT_EQ(other->end.reason, FinishReason::MaxTokens);
  engine_->stop();
  EXPECT_EQ(engine_->stats().blocks_free, engine_->stats().blocks_total);
}

TEST_F(EngineTest, AStepThatThrowsFailsWhatWasInIt) {
  Signal submitted;
  std::atomic<int> steps = 0;
  start({.max_running = 2}, [&](const model::BatchPlan&) {
    submitted.wait();
    if (++steps == 2) throw std::bad_alloc();
  });
  const auto first = submit(make_request(5, 10)).second;
  const auto second = submit(make_request(5, 10)).second;
  const auto third = submit(make_request(5, 10)).second;
  submitted.raise();
  first->finished.wait();
  EXPECT_EQ(first->end.reason, FinishReason::Failed);
  ASSERT_TRUE(first->end.error);
  EXPECT_EQ(first->end.error->code, ErrorCode::OutOfMemory);
  second->finished.wait();
  third->finished.wait();
  EXPECT_EQ(third->end.reason, FinishReason::MaxTokens);
  submit(make_request(5, 3)).second->finished.wait();
  engine_->stop();
  EXPECT_EQ(engine_->stats().blocks_free, engine_->stats().blocks_total);
}

TEST_F(EngineTest, RefusesWhatCanNeverFit) {
  start();
  EXPECT_EQ(engine_->context_length(), 2000);
  EXPECT_EQ(engine_->max_sequence_tokens(), 2000);
  auto sink = std::make_shared<WaitingSink>();
  EXPECT_EQ(engine_->submit(make_request(1990, 11), sink).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(engine_->submit(make_request(0, 11), sink).error().code, ErrorCode::InvalidArgument);
}

TEST_F(EngineTest, EmbedsBetweenGenerations) {
  start();
  const auto before = submit(make_request(50, 200)).second;
  auto sink = std::make_shared<WaitingSink>();
  EmbeddingRequest request = {.prompt = make_request(500, 1).prompt, .pooling = Pooling::Last};
  std::uint64_t digest = 0;
  for (const TokenId token : request.prompt) digest = extend_digest(digest, token);
  ASSERT_TRUE(engine_->submit(std::move(request), sink).ok());
  sink->finished.wait();
  before->finished.wait();
  ASSERT_TRUE(sink->embedding->ok());
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(sink->embedding->value()[i], digest_value(digest, i));
}

constexpr int kThreads = 4;
constexpr int kEach = 60;

TEST_F(EngineTest, ManyThreadsLoseNothing) {
  start({.max_waiting = 1000, .step_tokens = 24});
  std::vector<std::vector<std::shared_ptr<WaitingSink>>> sinks(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        auto [id, sink] = submit(make_request(1 + (i * 7 + t) % 90, 1 + i % 20));
        sinks[static_cast<std::size_t>(t)].push_back(sink);
        if (i % 3 == 0) sink->started.wait();
        if (i % 2 == 0) engine_->cancel(id);
        EXPECT_GE(engine_->stats().blocks_free, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t tokens = 0;
  for (const auto& mine : sinks) {
    for (const auto& sink : mine) {
      sink->finished.wait();
      tokens += std::ssize(sink->ids);
    }
  }
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.blocks_free, stats.blocks_total);
  EXPECT_EQ(stats.output_tokens, tokens);
  std::int64_t finished = 0;
  for (const std::int64_t count : stats.finished) finished += count;
  EXPECT_EQ(finished, kThreads * kEach);
}

}  // namespace
}  // namespace llorch::engine
