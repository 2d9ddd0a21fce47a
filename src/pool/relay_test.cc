// The relay to workers, over real sockets: a fake pool in front of a server that plays the worker.
#include "pool/relay.h"

#include <future>

#include "http/client.h"
#include "http/test_events.h"
#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

using http::Method;
using http::test::Gate;
using http::test::RawSocket;
using std::chrono::seconds;

// Answers what it was asked, streams, or hangs.
struct FakeUpstream {
  FakeUpstream() {
    http::Router router;
    for (const Method method : {Method::Get, Method::Post, Method::Put, Method::Delete}) {
      router.add(method, "/{path}",
                 http::PlainHandler([](const http::Request& request) { return echo(request); }),
                 {.takes_rest = true});
    }
    router.add(Method::Get, "/stream",
               http::Handler([this](const http::Request&, http::Responder& responder) {
                 return stream(responder);
               }));
    router.add(Method::Get, "/broken",
               http::Handler([](const http::Request&, http::Responder& responder) {
                 return broken(responder);
               }));
    server = http::test::start(std::move(router), [] {
      http::ServerOptions options = http::test::plain_options();
      options.more_hosts.clear();
      return options;
    }());
  }
  std::string uri() const { return fmt::format("http://127.0.0.1:{}", server->port()); }

  static Result<http::Response> echo(const http::Request& request) {
    std::string text = fmt::format("{} {}?{}\n", http::method_name(request.method), request.path,
                                   request.raw_query);
    for (const auto& [name, value] : request.headers) text += fmt::format("{}={}\n", name, value);
    http::Response response(418, "text/x-echo", text + request.body);
    response.headers.add("Retry-After", "7");
    response.headers.add("X-Own", "yes");
    return response;
  }
  http::Task<Status> stream(http::Responder& responder) {
    responder.on_disconnect([this] { gone.open(); });
    Result<http::Stream> stream = co_await responder.open_stream(200, "text/event-stream");
    if (!stream.ok()) co_return stream.error();
    const auto feed = std::make_shared<http::EventFeed<std::string>>(64);
    events.change([&feed](auto& now) { now = feed; });
    begun.open();
    co_return co_await http::test::pump_events(*stream, feed, seconds(60));
  }
  static http::Task<Status> broken(http::Responder& responder) {
    Result<http::Stream> stream = co_await responder.open_stream(200, "text/event-stream");
    if (!stream.ok()) co_return stream.error();
    Status written = co_await stream->write("event: token\ndata: 1\n\n");
    if (!written.ok()) co_return written;
    co_return Error{ErrorCode::Internal, "the worker dies here"};
  }

  Gate begun;
  Gate gone;
  test::Shared<std::shared_ptr<http::EventFeed<std::string>>> events;
  std::unique_ptr<http::Server> server;
};

struct RelayTest : ::testing::Test {
  RelayTest() { put("worker-cpu-0", PoolWorkerState::Ready); }

  void put(const std::string& id, PoolWorkerState state) {
    contract::PoolWorker worker = a_worker(id, state);
    worker.uri = state == PoolWorkerState::Starting ? std::string() : upstream.uri();
    workers.push_back(worker);
    pool.board.take_workers(workers);
  }
  std::string relay(std::string_view target, std::string_view headers = {}) {
    return pool.ask(
        fmt::format("GET /v2/workers/worker-cpu-0/api{} HTTP/1.1\r\nHost: "
                    "test\r\nConnection: close\r\n{}\r\n",
                    target, headers));
  }

  FakeUpstream upstream;
  FakePool pool;
  std::vector<contract::PoolWorker> workers;
};

TEST_F(RelayTest, PassesMethodPathQueryAndBodyOnAsTheyAre) {
  const std::string response = pool.send(
      "POST", "/v2/workers/worker-cpu-0/api/v1/chat/completions?a=1&b=%20x", R"({"x":1})");
  EXPECT_EQ(status_of(response), 418);
  EXPECT_EQ(header_of(response, "Content-Type"), "text/x-echo");
  EXPECT_EQ(header_of(response, "Retry-After"), "7");
  EXPECT_EQ(header_of(response, "X-Own"), "yes");
  const std::string body = body_of(response);
  EXPECT_TRUE(body.starts_with("POST /v1/chat/completions?a=1&b=%20x\n")) << body;
  EXPECT_TRUE(body.ends_with(R"({"x":1})")) << body;
  EXPECT_THAT(body_of(pool.send("DELETE", "/v2/workers/worker-cpu-0/api/jobs/1")),
              HasSubstr("DELETE /jobs/1?"));
}

TEST_F(RelayTest, NothingInAPathLeadsElsewhere) {
  for (const std::string_view path :
       {"/../../../health", "/..%2f..%2fworker-cpu-1%2fapi/x", "//evil.example/x",
        "/@evil.example/", "/%2e%2e/%2e%2e/x", "/http://evil.example/", "/a%3Fb%23c"}) {
    const std::string response = relay(path);
    EXPECT_EQ(status_of(response), 418) << response;
    EXPECT_TRUE(body_of(response).starts_with(fmt::format("GET {}?\n", path))) << response;
  }
  EXPECT_EQ(status_of(relay("")), 404) << "that is no path of the worker";
}

TEST_F(RelayTest, WhatIsBetweenUsAndTheClientStaysHere) {
  const std::string body = body_of(
      relay("/x",
            "Authorization: Bearer secret\r\nCookie: c\r\nX-Gone: 1\r\nConnection: X-Gone\r\n"
            "X-Correlation-Id: abc-1\r\nX-Deadline: 9000000000000\r\nX-Llorch-Ids: 1\r\n"
            "X-Llorch-Boot: 3\r\nTE: trailers\r\nUpgrade: h2c\r\nAccept: */*\r\n"));
  EXPECT_THAT(body,
              AllOf(HasSubstr("X-Correlation-Id=abc-1\n"), HasSubstr("X-Deadline=9000000000000\n"),
                    HasSubstr("X-Llorch-Ids=1\n"), HasSubstr("Accept=*/*\n")));
  for (const char* dropped :
       {"Authorization", "Cookie", "X-Gone", "X-Llorch-Boot", "TE=", "Upgrade"})
    EXPECT_THAT(body, ::testing::Not(HasSubstr(dropped)));
  EXPECT_EQ(header_of(relay("/x", "X-Correlation-Id: abc-1\r\n"), "X-Correlation-Id"), "abc-1");
}

TEST_F(RelayTest, EachEventLeavesAsSoonAsItComes) {
  RawSocket client(pool.server->port());
  client.send("GET /v2/workers/worker-cpu-0/api/stream HTTP/1.1\r\nHost: test\r\n\r\n");
  ASSERT_TRUE(upstream.begun.wait());
  const auto feed = upstream.events.get();
  for (int i = 0; i < 5; ++i) {
    const std::string event = fmt::format("event: token\ndata: {}\n\n", i);
    ASSERT_TRUE(feed->try_push(event));
    EXPECT_THAT(client.read_until(event), HasSubstr(event)) << "before the next one is made";
  }
  feed->close();
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("0\r\n\r\n")) << "a proper end";
}

TEST_F(RelayTest, AClientThatLeavesEndsTheWorkersStream) {
  {
    RawSocket client(pool.server->port());
    client.send("GET /v2/workers/worker-cpu-0/api/stream HTTP/1.1\r\nHost: test\r\n\r\n");
    ASSERT_TRUE(upstream.begun.wait());
    client.read_until("\r\n\r\n");
  }
  EXPECT_TRUE(upstream.gone.wait());
}

TEST_F(RelayTest, AnAnswerThatIsCutIsNotEnded) {
  const std::string response = relay("/broken");
  EXPECT_THAT(response, HasSubstr("data: 1"));
  EXPECT_THAT(response, ::testing::Not(HasSubstr("\r\n0\r\n\r\n")));
}

TEST_F(RelayTest, SaysWhyAWorkerCannotBeReached) {
  put("worker-cpu-1", PoolWorkerState::Starting);
  put("worker-cpu-2", PoolWorkerState::Stopped);
  put("worker-cpu-3", PoolWorkerState::Failed);
  const auto ask = [this](const std::string& id) {
    return pool.get(fmt::format("/v2/workers/{}/api/health", id));
  };
  EXPECT_EQ(status_of(ask("worker-cpu-1")), 503);
  EXPECT_THAT(message_of(ask("worker-cpu-1")), HasSubstr("starting"));
  EXPECT_EQ(status_of(ask("worker-cpu-2")), 404);
  EXPECT_THAT(message_of(ask("worker-cpu-2")), HasSubstr("stopped"));
  EXPECT_EQ(status_of(ask("worker-cpu-3")), 404);
  EXPECT_THAT(message_of(ask("worker-cpu-3")), HasSubstr("failed"));
  EXPECT_EQ(status_of(ask("worker-cpu-9")), 404);
  EXPECT_THAT(message_of(ask("worker-cpu-9")), HasSubstr("there is no worker"));
  upstream.server->stop();
  const std::string gone = ask("worker-cpu-0");
  EXPECT_EQ(status_of(gone), 503);
  EXPECT_EQ(code_of(gone), "UNAVAILABLE");
  EXPECT_THAT(message_of(gone), HasSubstr("worker-cpu-0"));
}

TEST_F(RelayTest, ALaterOrchestratorEndsTheRelaysOfTheOneBefore) {
  RawSocket older(pool.server->port());
  older.send(
      "GET /v2/workers/worker-cpu-0/api/stream HTTP/1.1\r\nHost: test\r\nX-Llorch-Boot: 4\r\n\r\n");
  ASSERT_TRUE(upstream.begun.wait());
  older.read_until("\r\n\r\n");
  EXPECT_EQ(status_of(relay("/x", "X-Llorch-Boot: 5\r\n")), 418);
  EXPECT_THAT(older.read_all(), ::testing::Not(HasSubstr("0\r\n\r\n"))) << "cut, not ended";
  EXPECT_TRUE(upstream.gone.wait());
  const std::string refused = relay("/x", "X-Llorch-Boot: 4\r\n");
  EXPECT_EQ(status_of(refused), 409);
  EXPECT_THAT(message_of(refused), HasSubstr("boot 5"));
  EXPECT_EQ(status_of(relay("/x")), 418) << "those without a boot are nobody's";
  EXPECT_EQ(status_of(relay("/x", "X-Llorch-Boot: soon\r\n")), 400);
}

TEST_F(RelayTest, AnOrchestratorThatPollsNoMoreLosesItsRelays) {
  const std::string poll =
      "GET /v2/state HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX-Llorch-Boot: 4\r\n\r\n";
  EXPECT_EQ(status_of(pool.ask(poll)), 200);
  RawSocket client(pool.server->port());
  client.send(
      "GET /v2/workers/worker-cpu-0/api/stream HTTP/1.1\r\nHost: test\r\nX-Llorch-Boot: 4\r\n\r\n");
  ASSERT_TRUE(upstream.begun.wait());
  client.read_until("\r\n\r\n");
  pool.fence.look(std::chrono::steady_clock::now() + seconds(40));
  ASSERT_TRUE(upstream.events.get()->try_push(": still there\n\n"));
  EXPECT_THAT(client.read_until("still there\n\n"), HasSubstr("still there"));
  pool.fence.look(std::chrono::steady_clock::now() + seconds(46));
  EXPECT_THAT(client.read_all(), ::testing::Not(HasSubstr("0\r\n\r\n")));
  EXPECT_TRUE(upstream.gone.wait());
}

TEST(Fence, KnowsWhoIsLast) {
  Fence fence;
  const Fence::TimePoint t0 = std::chrono::steady_clock::now();
  const Result<std::stop_token> first = fence.enter(1, t0);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(fence.hear(2, t0).ok());
  EXPECT_TRUE(first->stop_requested()) << "a poll of a later one is enough";
  EXPECT_EQ(fence.enter(1, t0).error().code, ErrorCode::Conflict);
  EXPECT_EQ(fence.hear(1, t0).error().code, ErrorCode::Conflict);
  const Result<std::stop_token> second = fence.enter(2, t0 + seconds(44));
  ASSERT_TRUE(second.ok());
  fence.look(t0 + seconds(45));
  EXPECT_FALSE(second->stop_requested());
  fence.look(t0 + seconds(46));
  EXPECT_TRUE(second->stop_requested());
  EXPECT_EQ(fence.enter(2, t0 + seconds(46)).error().code, ErrorCode::Conflict) << "polls first";
  EXPECT_TRUE(fence.hear(2, t0 + seconds(50)).ok());
  EXPECT_FALSE(fence.enter(2, t0 + seconds(51))->stop_requested());
}

TEST(Fence, ALowerBootMayComeOnceTheLaterOneHasGone) {
  Fence fence;
  const Fence::TimePoint t0 = std::chrono::steady_clock::now();
  EXPECT_TRUE(fence.hear(7, t0).ok());
  const Result<std::stop_token> later = fence.enter(7, t0);
  EXPECT_EQ(fence.hear(3, t0 + seconds(45)).error().code, ErrorCode::Conflict);
  EXPECT_EQ(fence.enter(3, t0 + seconds(46)).error().code, ErrorCode::Conflict) << "polls first";
  EXPECT_TRUE(fence.hear(3, t0 + seconds(46)).ok());
  EXPECT_TRUE(later->stop_requested());
  const Result<std::stop_token> lower = fence.enter(3, t0 + seconds(47));
  ASSERT_TRUE(lower.ok());
  EXPECT_TRUE(fence.hear(7, t0 + seconds(48)).ok()) << "and the later one may come back";
  EXPECT_TRUE(lower->stop_requested());
  EXPECT_EQ(fence.hear(3, t0 + seconds(49)).error().code, ErrorCode::Conflict);
}

}  // namespace
}  // namespace llorch::pool
