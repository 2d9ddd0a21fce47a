// Streams, feeds, disconnects, drain and stop, over real sockets.
#include "http/stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http/server.h"
#include "http/sse.h"
#include "http/test_events.h"
#include "http/test_server.h"

namespace llorch::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Feed = EventFeed<std::string>;

// Pumps `feed` to whoever asks for /events; opens `done` with the outcome in `status`.
struct FeedRoute {
  std::shared_ptr<Feed> feed;
  milliseconds keep_alive{10'000};
  Gate opened;
  Gate done;
  Status status = ok_status();

  explicit FeedRoute(std::size_t capacity = 1024) : feed(std::make_shared<Feed>(capacity)) {}

  Router router() {
    Router router;
    router.add(Method::Get, "/health",
               [](const Request&) -> Result<Response> { return Response{}; });
    router.add(Method::Get, "/events",
               [this](const Request&, Responder& responder) -> Task<Status> {
                 Result<Stream> stream =
                     co_await responder.open_stream(200, std::string(kEventStreamType));
                 if (!stream.ok()) co_return stream.error();
                 opened.open();
                 status = co_await test::pump_events(*stream, feed, keep_alive);
                 const Status outcome = status;
                 done.open();
                 co_return outcome;
               });
    return router;
  }
};

TEST(Stream, TheHeadLeavesWithTheFirstBytesWhereThoseAreThere) {
  FeedRoute route;
  ASSERT_TRUE(route.feed->try_push("data: first\n\n"));
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  const std::string both = socket.read_once();
  EXPECT_EQ(status_of(both), 200);
  EXPECT_THAT(both, HasSubstr("data: first")) << "in one packet";
  route.feed->close();
  EXPECT_EQ(socket.read_until("0\r\n\r\n"), "0\r\n\r\n");
}

TEST(Stream, TheHeadLeavesAtOnceWhereNothingIsThereYet) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  EXPECT_EQ(status_of(socket.read_until("\r\n\r\n")), 200) << "nobody has written anything";
  route.feed->close();
  EXPECT_EQ(socket.read_until("0\r\n\r\n"), "0\r\n\r\n");
}

TEST(Stream, TheHeadOfAnAnswerThatBreaksOffAtOnceIsSent) {
  Router router;
  router.add(Method::Get, "/", [](const Request&, Responder& responder) -> Task<Status> {
    Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
    if (!stream.ok()) co_return stream.error();
    co_return Error{ErrorCode::Internal, "broken"};
  });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/")));
  const std::string all = socket.read_all();
  EXPECT_EQ(status_of(all), 200);
  EXPECT_EQ(all.find("0\r\n\r\n"), std::string::npos) << "and no proper end";
}

TEST(Stream, SendsChunksAndKeepsTheConnection) {
  Router router;
  router.add(Method::Get, "/", [](const Request&, Responder& responder) -> Task<Status> {
    Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
    if (!stream.ok()) co_return stream.error();
    for (const std::string_view part : {"one,", "", "two"}) {
      const Status written = co_await stream->write(part);
      if (!written.ok()) co_return written;
    }
    co_return ok_status();
  });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(socket.send(get("/")));
    EXPECT_EQ(header_of(socket.read_until("\r\n\r\n"), "transfer-encoding"), "chunked");
    EXPECT_EQ(socket.read_until("0\r\n\r\n"), "4\r\none,\r\n3\r\ntwo\r\n0\r\n\r\n");
  }
  RawSocket old(server->port());
  ASSERT_TRUE(old.send("GET / HTTP/1.0\r\nHost: t\r\nConnection: keep-alive\r\n\r\n"));
  const std::string answer = old.read_all();
  EXPECT_EQ(header_of(answer, "transfer-encoding"), "") << "HTTP/1.0 knows no chunks";
  EXPECT_EQ(test::body_of(answer), "one,two");
  RawSocket head(server->port());
  ASSERT_TRUE(head.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n" + get("/")));
  EXPECT_EQ(status_of(head.read_until("\r\n\r\n")), 200);
  EXPECT_EQ(status_of(head.read_until("\r\n\r\n")), 200) << "no body may follow the head";
}

TEST(Server, RunsWhatBelongsToItsConnectionsUntilItStops) {
  const auto server = start(Router());
  Gate begun;
  Gate gone;
  struct Mark {
    Gate& gate;
    ~Mark() { gate.open(); }
  };
  ASSERT_TRUE(server->spawn([&]() -> Task<void> {
    const Mark mark{gone};
    Waker never;
    begun.open();
    while (true) co_await never.wait_until(std::chrono::steady_clock::now() + seconds(60));
  }));
  ASSERT_TRUE(begun.wait());
  server->stop();
  EXPECT_TRUE(gone.wait()) << "destroyed where it waited";
  EXPECT_FALSE(server->spawn([]() -> Task<void> { co_return; }));
}

TEST(Stream, AFailedHandlerLeavesTheStreamVisiblyBroken) {
  Router router;
  router.add(Method::Get, "/", [](const Request&, Responder& responder) -> Task<Status> {
    Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
    const Status written = co_await stream->write("half");
    co_return Error{ErrorCode::Internal, "broke"};
  });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/")));
  EXPECT_TRUE(test::body_of(socket.read_all()) == "4\r\nhalf\r\n");
}

TEST(EventFeed, EventsFromAnotherThreadArriveOneByOne) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  socket.read_until("\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    // The next event is pushed only when the one before has arrived: nothing may be held back.
    const std::string event = format_event("token", std::to_string(i));
    ASSERT_TRUE(route.feed->try_push(event));
    EXPECT_THAT(socket.read_until("\n\n\r\n"), HasSubstr(event));
  }
  route.feed->close();
  EXPECT_EQ(socket.read_until("0\r\n\r\n"), "0\r\n\r\n");
  ASSERT_TRUE(route.done.wait());
  EXPECT_TRUE(route.status.ok());
  EXPECT_FALSE(route.feed->try_push("late"));
}

TEST(EventFeed, ABurstFromSeveralThreadsLosesNothing) {
  FeedRoute route(100'000);
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  {
    std::vector<std::jthread> producers;
    for (int t = 0; t < 4; ++t) {
      producers.emplace_back([&route, t] {
        for (int i = 0; i < 1000; ++i) {
          ASSERT_TRUE(route.feed->try_push(format_event(fmt::format("e{}", t), std::to_string(i))));
        }
      });
    }
  }
  route.feed->close();
  const std::string all = socket.read_until("\r\n0\r\n\r\n");
  SseReader reader;
  std::vector<SseEvent> events;
  std::string text = test::body_of(all);
  // Chunk sizes stand on lines of their own, as fields nobody knows: the reader skips them.
  ASSERT_TRUE(reader.feed(text, events).ok());
  int next[4] = {0, 0, 0, 0};
  for (const SseEvent& event : events) {
    const int thread = event.event.back() - '0';
    EXPECT_EQ(event.data, std::to_string(next[thread]++)) << "order per producer";
  }
  EXPECT_EQ(events.size(), 4000u);
}

TEST(EventFeed, SilenceIsFilledWithComments) {
  FeedRoute route;
  route.keep_alive = milliseconds(10);
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  socket.read_until("\r\n\r\n");
  EXPECT_EQ(socket.read_until("\n\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
  EXPECT_EQ(socket.read_until("\n\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
}

TEST(EventFeed, RefusesMoreThanItsCapacityAndWorksWithoutAReader) {
  Feed feed(2);
  EXPECT_TRUE(feed.try_push("1"));
  EXPECT_TRUE(feed.try_push("2"));
  EXPECT_FALSE(feed.try_push("3"));
  EXPECT_FALSE(feed.is_closed());
  feed.close();
  feed.close();
  EXPECT_TRUE(feed.is_closed());
  EXPECT_FALSE(feed.try_push("4"));
}

TEST(Disconnect, WakesAHandlerThatWaits) {
  for (const bool with_reset : {false, true}) {
    FeedRoute route;
    const auto server = start(route.router());
    RawSocket socket(server->port());
    ASSERT_TRUE(socket.send(get("/events")));
    ASSERT_TRUE(route.opened.wait());
    with_reset ? socket.reset() : socket.close();
    ASSERT_TRUE(route.done.wait());
    EXPECT_EQ(route.status.error().code, ErrorCode::Cancelled);
    EXPECT_TRUE(route.feed->is_closed()) << "the producer must see it";
  }
}

TEST(Disconnect, IsSeenBeforeAnythingWasSent) {
  Gate entered;
  Gate left;
  const auto feed = std::make_shared<Feed>(1);
  Router router;
  router.add(Method::Post, "/work", [&](const Request&, Responder& responder) -> Task<Status> {
    responder.on_disconnect([&feed] { feed->close(); });
    entered.open();
    const Feed::Next next = co_await feed->next(seconds(10));
    EXPECT_TRUE(next.ended);
    EXPECT_TRUE(responder.is_closed());
    left.open();
    co_return Error{ErrorCode::Cancelled, "client gone"};
  });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(test::post("/work", "x")));
  ASSERT_TRUE(entered.wait());
  socket.close();
  EXPECT_TRUE(left.wait());
}

TEST(Disconnect, PipelinedRequestsAreNotMistakenForOne) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  ASSERT_TRUE(socket.send(get("/health")));
  ASSERT_TRUE(route.feed->try_push("still here\n\n"));
  EXPECT_THAT(socket.read_until("still here"), HasSubstr("still here"));
  route.feed->close();
  socket.read_until("0\r\n\r\n");
  EXPECT_EQ(status_of(socket.read_response()), 200);
}

TEST(SlowReader, FillsItsOwnFeedAndNobodyElses) {
  FeedRoute route(8);
  const auto server = start(route.router());
  RawSocket slow(server->port(), 4096);
  ASSERT_TRUE(slow.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  const std::string big(256 * 1024, 'x');
  // The kernel's buffers take a few megabytes at most; then the feed fills. try_push never waits,
  // so give the connection its chance by asking /health in between.
  bool is_full = false;
  for (int i = 0; i < 1000 && !is_full; ++i) {
    is_full = !route.feed->try_push(big);
    RawSocket other(server->port());
    ASSERT_TRUE(other.send(get("/health")));
    ASSERT_EQ(status_of(other.read_response()), 200);
  }
  EXPECT_TRUE(is_full);
}

TEST(SlowReader, IsGivenUpAfterTheWriteTimeout) {
  FeedRoute route(64);
  ServerOptions options = plain_options();
  options.write_timeout = milliseconds(100);
  const auto server = start(route.router(), options);
  RawSocket slow(server->port(), 4096);
  ASSERT_TRUE(slow.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  while (route.feed->try_push(std::string(1 << 20, 'x'))) {
  }
  ASSERT_TRUE(route.done.wait());
  EXPECT_THAT(route.status.error().message, HasSubstr("100 ms"));
}

TEST(Drain, LetsTheRunningRequestFinish) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket idle(server->port());
  ASSERT_TRUE(idle.send(get("/health")));
  idle.read_response();
  RawSocket busy(server->port());
  ASSERT_TRUE(busy.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  std::atomic<bool> drained = false;
  std::jthread drainer([&] {
    server->drain(seconds(10));
    drained = true;
  });
  EXPECT_TRUE(idle.is_closed_by_peer()) << "idle connections go at once";
  EXPECT_FALSE(drained);
  ASSERT_TRUE(route.feed->try_push("data: last\n\n"));
  route.feed->close();
  EXPECT_THAT(busy.read_all(), HasSubstr("data: last\n\n\r\n0\r\n\r\n"));
  drainer.join();
  EXPECT_TRUE(route.status.ok());
  RawSocket late(server->port());
  EXPECT_FALSE(late.send(get("/health"))) << "nobody listens any more";
}

TEST(Drain, EndsWhatIsStillRunningAfterItsPatience) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket busy(server->port());
  ASSERT_TRUE(busy.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  server->drain(milliseconds(20));
  ASSERT_TRUE(route.done.wait());
  EXPECT_EQ(route.status.error().code, ErrorCode::Cancelled);
  EXPECT_EQ(server->num_connections(), 0u);
}

TEST(Drain, IsCutShortByStop) {
  FeedRoute route;
  const auto server = start(route.router());
  RawSocket busy(server->port());
  ASSERT_TRUE(busy.send(get("/events")));
  ASSERT_TRUE(route.opened.wait());
  const auto before = std::chrono::steady_clock::now();
  std::jthread drainer([&] { server->drain(seconds(60)); });
  server->stop();
  drainer.join();
  server->stop();
  server->drain(seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - before, seconds(30));
}

TEST(Stop, DestroysAHandlerThatDoesNotListen) {
  const auto feed = std::make_shared<Feed>(4);
  Gate entered;
  Router router;
  router.add(Method::Get, "/", [&](const Request&, Responder&) -> Task<Status> {
    entered.open();
    const Feed::Next next = co_await feed->next(seconds(1000));
    ADD_FAILURE() << "nobody pushed";
    co_return ok_status();
  });
  auto server = start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/")));
  ASSERT_TRUE(entered.wait());
  server.reset();
  EXPECT_TRUE(feed->try_push("the feed outlives the server")) << "and does not touch it";
}

}  // namespace
}  // namespace llorch::http
