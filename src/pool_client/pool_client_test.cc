#include "pool_client/pool_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "contract/error_table.h"
#include "http/server.h"
#include "pool_client/ask_worker.h"
#include "support/listener.h"

namespace llorch::pool_client {
namespace {

using contract::DownloadEvent;
using contract::PoolWorkerState;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// A server whose answers a test writes itself.
class FakeManager {
 public:
  void answer(http::Method method, const std::string& path,
              std::function<Result<http::Response>(const http::Request& request)> handler) {
    router_.add(method, path, http::PlainHandler(std::move(handler)));
  }
  void answer(const std::string& path, int status, const std::string& body,
              const std::string& type = "application/json") {
    answer(http::Method::Get, path, [=](const http::Request&) -> Result<http::Response> {
      return http::Response(status, type, body);
    });
  }
  std::string start() {
    http::ServerOptions options;
    options.render_error = [](const Error& error, std::string_view correlation_id) {
      contract::RenderedError rendered = contract::render_error(error, correlation_id);
      return http::ErrorBody{rendered.status, "application/json", std::move(rendered.body), {}};
    };
    Result<std::unique_ptr<http::Server>> server =
        http::Server::start(std::move(router_), std::move(options));
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = server.take();
    return fmt::format("http://127.0.0.1:{}", server_->port());
  }

 private:
  http::Router router_;
  std::unique_ptr<http::Server> server_;
};

std::string worker_json(PoolWorkerState state) {
  contract::PoolWorker worker;
  worker.id = "worker-cpu-0";
  worker.state = state;
  if (state == PoolWorkerState::Failed) {
    worker.category = contract::ExitCategory::Crash;
    worker.reason = "was ended by signal 11";
    worker.last_log_lines = {"one", "two"};
  }
  return json::serialize(contract::to_json(worker));
}

const auto kIgnore = [](const contract::PoolWorker&) {};

TEST(PoolClient, SaysWhatARefusalSays) {
  FakeManager manager;
  const contract::RenderedError refusal =
      contract::render_error(Error{ErrorCode::NotFound, "there is no worker \"x\""}, "corr", {});
  manager.answer("/v2/workers/x", refusal.status, refusal.body);
  const PoolClient client({.url = manager.start() + "///"});
  const Result<contract::PoolWorker> worker = client.worker("x");
  ASSERT_FALSE(worker.ok());
  EXPECT_EQ(worker.error().code, ErrorCode::NotFound);
  EXPECT_EQ(worker.error().message, "there is no worker \"x\"");
}

TEST(PoolClient, SendsItsTokenAndTheAdviceOfItsCaller) {
  FakeManager manager;
  std::string seen;
  manager.answer(http::Method::Get, "/v2/workers",
                 [&seen](const http::Request& request) -> Result<http::Response> {
                   seen = request.headers.find("Authorization").value_or("");
                   const contract::RenderedError refusal =
                       contract::render_error(Error{ErrorCode::Unauthorized, "no"}, "corr", {});
                   return http::Response(401, "application/json", refusal.body);
                 });
  const PoolClient client(
      {.url = manager.start(), .token = "secret", .token_advice = "ask the owner"});
  const auto workers = client.workers();
  ASSERT_FALSE(workers.ok());
  EXPECT_EQ(seen, "Bearer secret");
  EXPECT_EQ(workers.error().message, "no (ask the owner)");
}

TEST(PoolClient, AnAnswerWithoutItsListIsAFault) {
  FakeManager manager;
  manager.answer("/v2/workers", 200, "{}");
  manager.answer("/health", 200, R"({"status":"ready"})");
  const PoolClient client({.url = manager.start()});
  EXPECT_EQ(client.workers().error().message, "the pool manager's answer has no workers");
  EXPECT_THAT(client.health().error().message, HasSubstr("something else than a pool manager"));
}

TEST(PoolClient, ADeadlineEndsACallThatNobodyAnswers) {
  const ::llorch::test::Listener silent;
  const PoolClient client({.url = silent.url()});
  const Result<json::Value> answer = client.get("/v2/models", {.total = milliseconds(50)});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(answer.error().message, HasSubstr(silent.url()));
}

TEST(PoolClient, AStopEndsACallFromAnotherThread) {
  const ::llorch::test::Listener silent;
  const PoolClient client({.url = silent.url()});
  std::stop_source stop;
  std::jthread other([&stop] { stop.request_stop(); });
  const Status events =
      client.read_events("/v2/downloads/x/events", [](const http::SseEvent&) { return true; },
                         {.total = milliseconds(0), .stop = stop.get_token()});
  ASSERT_FALSE(events.ok());
  EXPECT_EQ(events.error().code, ErrorCode::Cancelled);
}

TEST(WaitUntilReady, SeesEveryStateUntilItIsReady) {
  FakeManager manager;
  std::atomic<int> looks = 0;
  manager.answer(http::Method::Get, "/v2/workers/worker-cpu-0",
                 [&looks](const http::Request&) -> Result<http::Response> {
                   const bool is_ready = ++looks > 2;
                   return http::Response(
                       200, "application/json",
                       worker_json(is_ready ? PoolWorkerState::Ready : PoolWorkerState::Starting));
                 });
  const PoolClient client({.url = manager.start()});
  std::vector<PoolWorkerState> seen;
  const auto ready = wait_until_ready(
      client, "worker-cpu-0",
      [&seen](const contract::PoolWorker& worker) { seen.push_back(worker.state); }, {});
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_THAT(seen, ElementsAre(PoolWorkerState::Starting, PoolWorkerState::Starting,
                                PoolWorkerState::Ready));
}

TEST(WaitUntilReady, TellsWhyAWorkerFailed) {
  FakeManager manager;
  manager.answer("/v2/workers/worker-cpu-0", 200, worker_json(PoolWorkerState::Failed));
  const PoolClient client({.url = manager.start()});
  const auto ready = wait_until_ready(client, "worker-cpu-0", kIgnore, {});
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::LoadFailed);
  EXPECT_EQ(ready.error().message,
            "worker-cpu-0 failed (crash): was ended by signal 11\n    one\n    two");
}

TEST(WaitUntilReady, EndsWhenItsCallerSaysSo) {
  FakeManager manager;
  manager.answer("/v2/workers/worker-cpu-0", 200, worker_json(PoolWorkerState::Starting));
  const PoolClient client({.url = manager.start()});
  const auto late = wait_until_ready(client, "worker-cpu-0", kIgnore, {.total = milliseconds(1)});
  EXPECT_EQ(late.error().code, ErrorCode::DeadlineExceeded);
  std::stop_source stop;
  const auto stopped = wait_until_ready(
      client, "worker-cpu-0", [&stop](const contract::PoolWorker&) { stop.request_stop(); },
      {.stop = stop.get_token()});
  EXPECT_EQ(stopped.error().code, ErrorCode::Cancelled);
}

constexpr const char* kTwoLooks =
    "event: resolved\ndata: {\"event\":\"resolved\",\"model\":\"tiny\"}\n\n"
    "event: resolved\ndata: {\"event\":\"resolved\",\"model\":\"tiny\"}\n\n"
    "event: note\ndata: {\"text\":\"slow\"}\n\n";

// What a download's stream tells, and how it ends.
Result<json::Object> follow(const std::string& stream, std::vector<DownloadEvent>& told) {
  FakeManager manager;
  manager.answer("/v2/downloads/d/events", 200, stream, "text/event-stream");
  const PoolClient client({.url = manager.start()});
  return follow_download(client, "d",
                         [&told](const DownloadEvent& event) { told.push_back(event); }, {});
}

TEST(FollowDownload, TellsEachThingOnceAndReturnsTheEnd) {
  std::vector<DownloadEvent> told;
  const auto done = follow(std::string(kTwoLooks) + "event: done\ndata: {\"id\":\"d\"}\n\n", told);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->at("id"), "d");
  ASSERT_EQ(told.size(), 2);
  EXPECT_EQ(told[0].kind, DownloadEvent::Kind::Resolved);
  EXPECT_EQ(told[1].kind, DownloadEvent::Kind::Note);
  EXPECT_EQ(told[1].model, "tiny");
  EXPECT_EQ(told[1].text, "slow");
}

TEST(FollowDownload, AStreamWithoutAnEndIsAManagerThatWentAway) {
  std::vector<DownloadEvent> told;
  const auto done = follow(kTwoLooks, told);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::Unavailable);
}

TEST(AskWorker, ReadsATextUntilItsEnd) {
  FakeManager worker;
  std::string body;
  worker.answer(http::Method::Post, "/execute",
                [&body](const http::Request& request) -> Result<http::Response> {
                  body = request.body;
                  return http::Response(200, "text/event-stream",
                                        "event: token\ndata: {\"t\":\"Once\",\"i\":0}\n\n"
                                        "event: token\ndata: {\"t\":\" upon\",\"i\":1}\n\n");
                });
  const Question question{.uri = worker.start(), .prompt = "tell", .job_id = "job-7"};
  Answer answer;
  const Status asked = ask_worker(
      question, [](std::string_view, bool) { return true; }, {}, answer);
  EXPECT_THAT(body, HasSubstr("job-7"));
  EXPECT_EQ(answer.text, "Once upon");
  ASSERT_FALSE(asked.ok());  // no end event
  EXPECT_EQ(asked.error().code, ErrorCode::Internal);
  const Status enough = ask_worker(
      question, [](std::string_view, bool) { return false; }, {}, answer);
  EXPECT_EQ(answer.text, "Once");
  EXPECT_EQ(enough.error().code, ErrorCode::Cancelled);
}

}  // namespace
}  // namespace llorch::pool_client
