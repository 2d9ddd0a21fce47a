#include <gtest/gtest.h>

#include "pool/speed_book.h"
#include "pool/speed_learner.h"
#include "support/test_paths.h"

namespace llorch::pool {
namespace {

contract::PoolWorker a_worker() {
  contract::PoolWorker worker;
  worker.id = "worker-cpu-0";
  worker.model = "m";
  worker.backend = "cpu";
  worker.model_hash = std::string(32, 'a');
  return worker;
}

TEST(SpeedLearner, ReadsTheWorkersPage) {
  const auto counters = read_counters(
      "# HELP\nllorch_queue_seconds_sum 0.5\nllorch_first_token_seconds_sum 2.5\n"
      "llorch_first_token_seconds_count 2\nllorch_token_seconds_sum 0.02\n"
      "llorch_token_seconds_count 2\nllorch_prompt_tokens_total 200\nllorch_slots_busy 3\n"
      "llorch_decode_tokens_per_second 30\n");
  ASSERT_TRUE(counters.has_value());
  EXPECT_EQ(counters->prompt_tokens, 200);
  EXPECT_EQ(counters->first_tokens, 2);
  EXPECT_DOUBLE_EQ(counters->first_token_s, 2.5);
  EXPECT_EQ(counters->slots_busy, 3);
  EXPECT_FALSE(read_counters("# HELP\nother 1\n"));
}

TEST(SpeedLearner, MeasuresARequestBetweenTwoIdleMoments) {
  SpeedLearner learner;
  WorkerCounters now;
  EXPECT_TRUE(learner.take(now).empty());
  now.slots_busy = 1;
  now.prompt_tokens = 100;
  EXPECT_TRUE(learner.take(now).empty()) << "its end is not there yet";
  now.slots_busy = 0;
  now.first_tokens = 1;
  now.first_token_s = 1.5;
  now.queue_s = 0.5;
  now.decodes = 1;
  now.token_s = 0.05;
  const std::vector<SpeedSample> samples = learner.take(now);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].streams, 0);
  EXPECT_DOUBLE_EQ(samples[0].tps, 100);
  EXPECT_EQ(samples[1].streams, 1);
  EXPECT_DOUBLE_EQ(samples[1].tps, 20);
  EXPECT_TRUE(learner.take(now).empty()) << "nothing new";
}

TEST(SpeedLearner, OneTokenAskedForAsAProbeMeasuresNothing) {
  SpeedLearner learner;
  WorkerCounters now;
  learner.take(now);
  now.prompt_tokens = 1;
  now.first_tokens = 1;
  now.first_token_s = 0.2;
  EXPECT_TRUE(learner.take(now).empty());
}

TEST(SpeedLearner, SeveralStreamsAreMeasuredWhileTheirNumberStays) {
  SpeedLearner learner;
  WorkerCounters now;
  learner.take(now);
  now.slots_busy = 3;
  now.decode_tps = 60;
  for (int look = 0; look < 3; ++look) EXPECT_TRUE(learner.take(now).empty());
  const std::vector<SpeedSample> samples = learner.take(now);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].streams, 4) << "steps of two";
  EXPECT_DOUBLE_EQ(samples[0].tps, 20);
  now.slots_busy = 2;
  EXPECT_TRUE(learner.take(now).empty());
}

TEST(SpeedLearner, StepsGoUpTo64) {
  EXPECT_EQ(stream_step(1), 1);
  EXPECT_EQ(stream_step(3), 4);
  EXPECT_EQ(stream_step(64), 64);
  EXPECT_EQ(stream_step(1000), 64);
}

TEST(SpeedBook, KeepsMeansOverRestarts) {
  const llorch::test::TempDir folder;
  const auto file = folder.path() / "speeds.json";
  {
    SpeedBook book(file);
    book.add(a_worker(), {{0, 100}, {4, 10}, {1, 20}});
    book.add(a_worker(), {{1, 20}});
    book.add_load(a_worker(), 500);
    contract::PoolWorker nameless = a_worker();
    nameless.model_hash.clear();
    book.add(nameless, {{1, 1}});
    ASSERT_TRUE(book.save(true).ok());
  }
  SpeedBook book(file);
  ASSERT_EQ(book.list().size(), 1U);
  const contract::ModelSpeed speed = book.list().front();
  EXPECT_DOUBLE_EQ(speed.prefill_tps, 100);
  ASSERT_EQ(speed.decode_tps.size(), 2U);
  EXPECT_EQ(speed.decode_tps[0].streams, 1);
  EXPECT_NEAR(speed.decode_tps[0].tps, 20, 1e-9);
  EXPECT_EQ(speed.decode_tps[1].streams, 4);
  EXPECT_DOUBLE_EQ(speed.load_ms, 500);
  EXPECT_EQ(speed.samples, 5);
  EXPECT_FALSE(speed.measured_at.empty());
}

TEST(SpeedBook, MovesSlowlyAndSaysWhenItHas) {
  SpeedBook book({});
  book.add(a_worker(), {{1, 100}});
  const std::uint64_t version = book.version();
  book.add(a_worker(), {{1, 101}});
  EXPECT_EQ(book.version(), version) << "too little to tell";
  book.add(a_worker(), {{1, 1}});
  EXPECT_GT(book.version(), version);
  EXPECT_GT(book.list().front().decode_tps.front().tps, 50) << "one bad second is not all";
}

}  // namespace
}  // namespace llorch::pool
