// What a server does to connections that take too long, and when there are too many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "http/feed.h"
#include "http/server.h"
#include "http/test_events.h"
#include "http/test_server.h"

namespace llorch::http {
namespace {

using std::chrono::milliseconds;
using test::echo_router;

TEST(ServerLimits, ASlowHeadIsClosedByItsDeadline) {
  ServerOptions options = plain_options();
  options.header_timeout = milliseconds(50);
  const auto server = start(echo_router(), options);
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send("GET /health HTTP/1.1\r\nHos"));
  EXPECT_TRUE(socket.is_closed_by_peer());
}

TEST(ServerLimits, ASlowBodyIsClosedByItsDeadline) {
  ServerOptions options = plain_options();
  options.body_timeout = milliseconds(50);
  const auto server = start(echo_router(), options);
  RawSocket socket(server->port());
  ASSERT_TRUE(
      socket.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: "
                  "application/json\r\nContent-Length: 10\r\n\r\nabc"));
  EXPECT_TRUE(socket.is_closed_by_peer());
}

TEST(ServerLimits, AnIdleConnectionIsClosed) {
  ServerOptions options = plain_options();
  options.idle_timeout = milliseconds(50);
  const auto server = start(echo_router(), options);
  RawSocket silent(server->port());
  EXPECT_TRUE(silent.is_closed_by_peer());
  RawSocket used(server->port());
  ASSERT_TRUE(used.send(get("/health")));
  EXPECT_EQ(status_of(used.read_response()), 200);
  EXPECT_TRUE(used.is_closed_by_peer());
}

// Streams that stay open until their client goes.
Router streaming_router() {
  Router router = echo_router();
  router.add(Method::Get, "/stream", [](const Request&, Responder& responder) -> Task<Status> {
    const auto feed = std::make_shared<EventFeed<std::string>>(1);
    Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
    if (!stream.ok()) co_return stream.error();
    co_return co_await test::pump_events(*stream, feed, std::chrono::minutes(10));
  });
  return router;
}

TEST(ServerLimits, OneRequestTooManyIsToldSo) {
  ServerOptions options = plain_options();
  options.max_connections = 2;
  const auto server = start(streaming_router(), options);
  RawSocket first(server->port());
  RawSocket second(server->port());
  for (RawSocket* socket : {&first, &second}) {
    ASSERT_TRUE(socket->send(get("/stream")));
    EXPECT_EQ(status_of(socket->read_until("\r\n\r\n")), 200);
  }
  RawSocket third(server->port());
  third.send(get("/health"));
  const std::string refused = third.read_response();
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_EQ(header_of(refused, "connection"), "close");
  third.shutdown_send();
  EXPECT_TRUE(third.is_closed_by_peer());
  EXPECT_GE(server->num_connections(), 2u) << "the others are not disturbed";
}

TEST(ServerLimits, TheOldestConnectionThatWaitsMakesRoom) {
  ServerOptions options = plain_options();
  options.max_connections = 32;
  const auto server = start(streaming_router(), options);
  RawSocket stream(server->port());
  ASSERT_TRUE(stream.send(get("/stream")));
  EXPECT_EQ(status_of(stream.read_until("\r\n\r\n")), 200);
  RawSocket half(server->port());
  ASSERT_TRUE(half.send("GET /health HTTP/1.1\r\n"));
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int i = 0; i < 30; ++i) {
    idle.push_back(std::make_unique<RawSocket>(server->port()));
    ASSERT_TRUE(idle.back()->send(get("/health")));
    EXPECT_EQ(status_of(idle.back()->read_response()), 200);
  }
  // Fewer than there are places that wait, so that one of the old ones always does.
  for (int i = 0; i < 20; ++i) {
    RawSocket asker(server->port());
    ASSERT_TRUE(asker.send(get("/health")));
    EXPECT_EQ(status_of(asker.read_response()), 200) << i;
  }
  EXPECT_TRUE(half.is_closed_by_peer());
  ASSERT_TRUE(idle.back()->send(get("/health")));
  EXPECT_EQ(status_of(idle.back()->read_response()), 200) << "the youngest stays";
}

}  // namespace
}  // namespace llorch::http
