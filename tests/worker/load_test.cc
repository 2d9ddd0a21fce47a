// Many requests: at once, one after the other, from readers that do not read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "http/test_server.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// The outcomes of `count` requests sent at the same moment, each with its own seed.
std::vector<ExecuteOutcome> burst(const WorkerFixture& worker, int count, int max_tokens) {
  std::vector<ExecuteOutcome> outcomes(static_cast<std::size_t>(count));
  std::vector<std::thread> clients;
  for (int i = 0; i < count; ++i) {
    clients.emplace_back([&, i] {
      outcomes[static_cast<std::size_t>(i)] = worker.execute(fmt::format(
          R"({{"job_id":"b{}","prompt":"Tell me {}","max_tokens":{},"seed":{},"top_p":0.95}})", i,
          i % 5, max_tokens, i));
    });
  }
  for (std::thread& client : clients) client.join();
  return outcomes;
}

TEST(WorkerLoad, TenAtOnceSayWhatTheySayAlone) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const std::vector<ExecuteOutcome> together = burst(worker, 10, 60);
  for (int i = 0; i < 10; ++i) {
    const ExecuteOutcome& outcome = together[static_cast<std::size_t>(i)];
    ASSERT_TRUE(outcome.end.has_value()) << outcome.body;
    const ExecuteOutcome alone = worker.execute(fmt::format(
        R"({{"job_id":"a{}","prompt":"Tell me {}","max_tokens":60,"seed":{},"top_p":0.95}})", i,
        i % 5, i));
    EXPECT_EQ(outcome.text(), alone.text()) << i;
    EXPECT_EQ(outcome.end->tokens_out, alone.end->tokens_out);
  }
  EXPECT_TRUE(worker.wait_until_idle());
}

TEST(WorkerLoad, ABurstOf64LosesNothing) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  int ended = 0;
  for (const ExecuteOutcome& outcome : burst(worker, 64, 40)) {
    ASSERT_EQ(outcome.status, 200) << outcome.body;
    ended += outcome.end.has_value() ? 1 : 0;
  }
  EXPECT_EQ(ended, 64);
  EXPECT_TRUE(worker.wait_until_idle()) << "a block was lost";
}

TEST(WorkerLoad, AFullQueueIs429) {
  WorkerFixture worker(kSlow, {"--max-batch", "1", "--max-queue", "2"});
  ASSERT_TRUE(worker.wait_until_healthy());
  std::vector<std::unique_ptr<http::test::RawSocket>> holders;
  for (int i = 0; i < 3; ++i) {
    holders.push_back(std::make_unique<http::test::RawSocket>(worker.port()));
    ASSERT_TRUE(holders.back()->send(http::test::post(
        "/execute",
        fmt::format(R"({{"job_id":"h{}","prompt":"x","max_tokens":2000,"temperature":0}})", i), "",
        worker.authority())));
    if (i == 0) {
      ASSERT_TRUE(worker.wait_until_busy(1));
    }
  }
  while (worker.health().queue_depth < 2) std::this_thread::sleep_for(milliseconds(2));
  const http::Response refused = worker.post("/execute", R"({"job_id":"z","prompt":"x"})");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("QUEUE_FULL"));
  EXPECT_EQ(refused.headers.find("Retry-After"), "1");
  holders.clear();
  EXPECT_TRUE(worker.wait_until_idle()) << "those that wait leave the queue with their clients";
}

TEST(WorkerLoad, HealthAnswersWhileDecoding) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  std::thread client(
      [&] { worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":200,"temperature":0})"); });
  ASSERT_TRUE(worker.wait_until_busy(1));
  std::vector<double> times;
  while (worker.health().slots_busy > 0) {
    const auto since = std::chrono::steady_clock::now();
    worker.get("/health");
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - since;
    times.push_back(elapsed.count());
    std::this_thread::sleep_for(milliseconds(5));
  }
  client.join();
  ASSERT_GT(times.size(), 5U);
  std::sort(times.begin(), times.end());
  std::printf("/health while decoding: median %.2f ms, worst %.2f ms of %zu\n",
              times[times.size() / 2], times.back(), times.size());
  EXPECT_LT(times[times.size() / 2], 100) << "it waited for the engine";
}

TEST(WorkerLoad, AThousandRequestsLeaveMemoryFlat) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto ask = [&](int i) {
    const ExecuteOutcome outcome = worker.execute(
        fmt::format(R"({{"job_id":"s{}","prompt":"Number {}","max_tokens":8}})", i, i));
    ASSERT_TRUE(outcome.end.has_value()) << outcome.body;
  };
  for (int i = 0; i < 300; ++i) ask(i);  // allocators and caches find their size
  const std::int64_t before = worker.process().resident_bytes();
  for (int i = 300; i < 1000; ++i) ask(i);
  const std::int64_t after = worker.process().resident_bytes();
  std::printf("resident: %.2f MB after 300 requests, %.2f MB after 1000\n",
              static_cast<double>(before) / 1e6, static_cast<double>(after) / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(after - before, 3'000'000);  // a sanitizer keeps what was freed
#endif
  EXPECT_TRUE(worker.wait_until_idle());
}

TEST(WorkerLoad, ReadersThatDoNotReadHarmNobody) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  std::vector<std::unique_ptr<http::test::RawSocket>> lazy;
  for (int i = 0; i < 12; ++i) {
    lazy.push_back(std::make_unique<http::test::RawSocket>(worker.port(), 1024));
    ASSERT_TRUE(lazy.back()->send(http::test::post(
        "/execute",
        fmt::format(R"({{"job_id":"lazy{}","prompt":"x","max_tokens":500,"temperature":0}})", i),
        "", worker.authority())));
  }
  for (int i = 0; i < 10; ++i) {
    const ExecuteOutcome outcome = worker.execute(
        fmt::format(R"({{"job_id":"quick{}","prompt":"x","max_tokens":20,"temperature":0}})", i));
    ASSERT_TRUE(outcome.end.has_value()) << outcome.body;
  }
  EXPECT_TRUE(worker.wait_until_idle()) << "nobody reads, and still the blocks come back";
  // What was said to them is still there when they come to read it.
  EXPECT_THAT(lazy[0]->read_until("event: end"), HasSubstr(R"("i":400,)"));
}

}  // namespace
}  // namespace llorch::test
