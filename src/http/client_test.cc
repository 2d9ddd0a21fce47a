// The client against our server and against servers that misbehave.
#include "http/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "http/io_threads.h"
#include "http/sse.h"
#include "http/test_events.h"
#include "http/test_server.h"
#include "support/listener.h"

namespace llorch::http {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string url(std::uint16_t port, std::string_view path) {
  return fmt::format("http://127.0.0.1:{}{}", port, path);
}

// Accepts connections one after the other and answers each with given bytes, whatever is asked;
// then closes, or holds the connection open until its own end.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::string answer, bool hold_open = false)
      : answer_(std::move(answer)), hold_open_(hold_open) {
    thread_ = std::jthread([this] { serve(); });
  }
  ~ScriptedServer() {
    ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
    for (const int fd : held_) ::close(fd);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  std::uint16_t port() const { return listener_.port(); }

 private:
  void serve() {
    for (int fd = 0; (fd = ::accept(listener_.fd(), nullptr, nullptr)) >= 0;) {
      char ignored[4096];
      [[maybe_unused]] const ssize_t got = ::recv(fd, ignored, sizeof(ignored), 0);
      ::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (hold_open_) {
        held_.push_back(fd);
      } else {
        ::close(fd);
      }
    }
  }

  llorch::test::Listener listener_;
  std::string answer_;
  bool hold_open_;
  std::vector<int> held_;
  std::jthread thread_;
};

Error error_of(const std::string& target, const std::function<void(ClientRequest&)>& adjust = {}) {
  Client client;
  ClientRequest request{Method::Get, target};
  if (adjust) adjust(request);
  const Result<Response> response = client.send(request);
  EXPECT_FALSE(response.ok()) << target;
  return response.ok() ? Error{} : response.error();
}

Router echo_router() {
  Router router;
  router.add(Method::Post, "/echo", [](const Request& request) -> Result<Response> {
    Response response(201, "text/plain", request.body);
    response.headers.add("X-Seen", std::string(request.headers.find("X-Sent").value_or("")));
    return response;
  });
  router.add(Method::Get, "/numbers", [](const Request&, Responder& responder) -> Task<Status> {
    Result<Stream> stream = co_await responder.open_stream(200, std::string(kEventStreamType));
    if (!stream.ok()) co_return stream.error();
    for (int i = 0; i < 1000; ++i) {
      const std::string event = format_event("n", std::to_string(i));
      const Status written = co_await stream->write(event);
      if (!written.ok()) co_return written;
    }
    co_return ok_status();
  });
  return router;
}

TEST(Client, SendsAndReceivesWholeMessages) {
  const auto server = start(echo_router());
  Client client;
  ClientRequest request{Method::Post, url(server->port(), "/echo")};
  request.headers.add("X-Sent", "yes");
  for (const std::size_t size : {0u, 1u, 100'000u, 3'000'000u}) {
    request.body = std::string(size, 'b');
    const Result<Response> response = client.send(request);
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->headers.find("x-seen"), "yes");
    EXPECT_EQ(response->body.size(), size);
  }
}

TEST(Client, AnErrorStatusIsAnAnswer) {
  const auto server = start(echo_router());
  Client client;
  const Result<Response> response = client.send({Method::Get, url(server->port(), "/none")});
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 404);
  EXPECT_THAT(response->body, HasSubstr("nothing is served"));
}

TEST(Client, HeadHasNoBody) {
  const auto server = start(echo_router());
  Client client;
  const Result<Response> response = client.send({Method::Head, url(server->port(), "/none")});
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->status, 404);
  EXPECT_EQ(response->body, "");
}

TEST(Client, StreamsABodyAsItComes) {
  const auto server = start(echo_router());
  Client client;
  SseReader reader;
  std::vector<SseEvent> events;
  const ClientRequest request{Method::Get, url(server->port(), "/numbers")};
  const auto collect = [&](std::string_view bytes) { return reader.feed(bytes, events).ok(); };
  const Result<Response> response = client.stream(request, collect);
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->status, 200);
  ASSERT_EQ(events.size(), 1000u);
  EXPECT_EQ(events.back(), (SseEvent{"n", "999", ""}));

  const Result<Response> stopped = client.stream(request, [](std::string_view) { return false; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::Cancelled);

  const auto unexpected = [](std::string_view) {
    ADD_FAILURE() << "the body of an error is not streamed";
    return true;
  };
  const Result<Response> absent =
      client.stream({Method::Get, url(server->port(), "/none")}, unexpected);
  ASSERT_TRUE(absent.ok());
  EXPECT_EQ(absent->status, 404);
  EXPECT_THAT(absent->body, HasSubstr("nothing is served"));
}

TEST(Client, RelaysInsideAHandlerAndSeesBothEndsLeave) {
  const auto upstream_feed = std::make_shared<EventFeed<std::string>>(16);
  test::Gate upstream_done;
  Router upstream_router;
  upstream_router.add(Method::Get, "/", [&](const Request&, Responder& responder) -> Task<Status> {
    Result<Stream> stream = co_await responder.open_stream(200, std::string(kEventStreamType));
    const Status outcome = co_await test::pump_events(*stream, upstream_feed, milliseconds(10'000));
    upstream_done.open();
    co_return outcome;
  });
  const auto upstream = start(std::move(upstream_router));

  Client client;
  Router router;
  router.add(Method::Get, "/relay", [&](const Request&, Responder& responder) -> Task<Status> {
    ClientRequest request(Method::Get, url(upstream->port(), "/"));
    request.total_timeout = milliseconds(0);
    Result<ResponseStream> from = co_await client.async_open(std::move(request));
    if (!from.ok()) co_return from.error();
    Result<Stream> to =
        co_await responder.open_stream(from->status(), std::string(kEventStreamType));
    responder.on_disconnect([&from] { from->close(); });
    while (true) {
      const Result<std::string> piece = co_await from->read_some();
      if (!piece.ok()) co_return piece.error();
      if (piece->empty()) co_return ok_status();
      const Status written = co_await to->write(*piece);
      if (!written.ok()) co_return written;
    }
  });
  const auto relay = start(std::move(router));
  test::RawSocket socket(relay->port());
  ASSERT_TRUE(socket.send(test::get("/relay")));
  ASSERT_TRUE(upstream_feed->try_push("data: hello\n\n"));
  EXPECT_THAT(socket.read_until("data: hello\n\n"), HasSubstr("hello"));
  socket.close();
  EXPECT_TRUE(upstream_done.wait()) << "the disconnect must travel upstream";
}

TEST(Client, SaysWhatHappened) {
  std::uint16_t free_port = 0;
  {
    const auto server = start(echo_router());
    free_port = server->port();
  }
  const std::string place = fmt::format("127.0.0.1:{}", free_port);
  const Error refused = error_of(url(free_port, "/"));
  EXPECT_EQ(refused.code, ErrorCode::Unavailable);
  EXPECT_THAT(refused.message, HasSubstr(place + ": connection refused"));
  EXPECT_EQ(error_of("ftp://127.0.0.1/").code, ErrorCode::InvalidArgument);
  EXPECT_EQ(error_of("nonsense").code, ErrorCode::InvalidArgument);
  EXPECT_EQ(
      error_of(url(free_port, "/"), [](ClientRequest& r) { r.headers.add("A", "b\r\nC: d"); }).code,
      ErrorCode::InvalidArgument);
  const Error unknown = error_of("http://no-such-host.invalid/");
  EXPECT_EQ(unknown.code, ErrorCode::Unavailable);
  EXPECT_THAT(unknown.message, HasSubstr("no-such-host.invalid"));
}

TEST(Client, GivesUpAtItsDeadlines) {
  const ScriptedServer silent("", true);
  const Error total = error_of(url(silent.port(), "/"),
                               [](ClientRequest& r) { r.total_timeout = milliseconds(50); });
  EXPECT_EQ(total.code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(total.message, HasSubstr("while waiting for the response"));
  const Error idle = error_of(url(silent.port(), "/"),
                              [](ClientRequest& r) { r.idle_timeout = milliseconds(50); });
  EXPECT_EQ(idle.code, ErrorCode::DeadlineExceeded);
  const ScriptedServer stuck("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true);
  const Error body = error_of(url(stuck.port(), "/"),
                              [](ClientRequest& r) { r.total_timeout = milliseconds(50); });
  EXPECT_EQ(body.code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(body.message, HasSubstr("3 bytes had come"));
}

TEST(Client, ABlockingCallCanBeGivenUp) {
  Router router;
  test::Gate arrived;
  router.add(
      Method::Get, "/never", Handler([&](const Request&, Responder& responder) -> Task<Status> {
        Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
        arrived.open();
        auto feed = std::make_shared<EventFeed<std::string>>(1);
        stream->on_disconnect([feed] { feed->close(); });
        co_return co_await test::pump_events(*stream, feed, std::chrono::milliseconds(60'000));
      }));
  const auto server = start(std::move(router));
  std::stop_source stop;
  Client client;
  ClientRequest request(Method::Get, fmt::format("http://127.0.0.1:{}/never", server->port()));
  request.stop = stop.get_token();
  std::thread other([&] {
    EXPECT_TRUE(arrived.wait());
    stop.request_stop();
  });
  const Result<Response> given_up = client.send(request);
  other.join();
  ASSERT_FALSE(given_up.ok());
  EXPECT_EQ(given_up.error().code, ErrorCode::Cancelled);
  const Result<Response> at_once = client.send(request);
  ASSERT_FALSE(at_once.ok());
  EXPECT_EQ(at_once.error().code, ErrorCode::Cancelled);
}

TEST(Client, ACoroutinesCallCanBeGivenUpToo) {
  const ScriptedServer silent("", true);
  const ScriptedServer stuck("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true);
  for (const std::uint16_t port : {silent.port(), stuck.port()}) {
    Client client;
    std::stop_source stop;
    std::promise<Error> got;
    IoThreads threads(1);
    threads.spawn([&]() -> Task<void> {
      ClientRequest request(Method::Get, url(port, "/"));
      request.stop = stop.get_token();
      const Result<Response> given_up = co_await client.async_send(std::move(request));
      got.set_value(given_up.ok() ? Error{} : given_up.error());
    });
    stop.request_stop();
    EXPECT_EQ(got.get_future().get().code, ErrorCode::Cancelled);
  }
}

TEST(Client, RefusesBrokenResponses) {
  struct Case {
    const char* answer;
    ErrorCode code;
    const char* message;
  };
  for (const Case& c : {
           Case{"", ErrorCode::Unavailable, "closed the connection early"},
           Case{"HTTP/1.1 200 OK\r\nConte", ErrorCode::Unavailable, "closed the connection early"},
           Case{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", ErrorCode::Unavailable,
                "3 bytes had come"},
           Case{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                ErrorCode::Unavailable, "closed the"},
           Case{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nqq\r\n", ErrorCode::Corrupt,
                "not valid HTTP"},
           Case{"SSH-2.0-OpenSSH\r\n\r\n", ErrorCode::Corrupt, "not valid HTTP"},
           Case{"HTTP/1.1 200 OK\r\nContent-Length: "
                "101\r\n\r\n0123456789012345678901234567890123456789"
                "0123456789012345678901234567890123456789012345678901234567890",
                ErrorCode::TooLarge, "100 bytes allowed"},
       }) {
    const ScriptedServer server(c.answer);
    const Error error =
        error_of(url(server.port(), "/"), [](ClientRequest& r) { r.max_response_bytes = 100; });
    EXPECT_EQ(error.code, c.code) << c.answer << error.message;
    EXPECT_THAT(error.message, HasSubstr(c.message));
    EXPECT_THAT(error.message, HasSubstr(std::to_string(server.port())));
  }
}

TEST(Client, UnderstandsBodiesThatEndWithTheConnectionAndInterimResponses) {
  const ScriptedServer until_close("HTTP/1.0 200 OK\r\n\r\nto the end");
  Client client;
  EXPECT_EQ(client.send({Method::Get, url(until_close.port(), "/")}).take().body, "to the end");
  const ScriptedServer interim(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(client.send({Method::Get, url(interim.port(), "/")}).take().body, "ok");
}

TEST(Client, ReusesConnectionsWhenAsked) {
  for (const std::size_t idle : {0u, 4u}) {
    const auto server = start(echo_router());
    Client client({.max_idle_connections = idle});
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(client.send({Method::Get, url(server->port(), "/none")}).take().status, 404);
      if (idle > 0) {
        EXPECT_EQ(server->num_connections(), 1u);
      }
    }
  }
}

TEST(Client, APostReusesAConnectionWhereItHasAName) {
  for (const bool has_name : {false, true}) {
    const auto server = start(echo_router());
    Client client({.max_idle_connections = 4});
    for (int i = 0; i < 5; ++i) {
      ClientRequest request(Method::Post, url(server->port(), "/echo"));
      request.body = std::to_string(i);
      if (has_name) request.headers.add("Idempotency-Key", std::to_string(i));
      const Result<Response> response = client.send(request);
      ASSERT_TRUE(response.ok()) << response.error().message;
      EXPECT_EQ(response->body, std::to_string(i));
    }
    EXPECT_EQ(server->num_connections() == 1, has_name) << server->num_connections();
  }
}

TEST(Client, APostOnAConnectionThatDiedIsSentOnceMore) {
  const ScriptedServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  Client client({.max_idle_connections = 4});
  for (int i = 0; i < 50; ++i) {
    ClientRequest request(Method::Post, url(server.port(), "/"));
    request.headers.add("Idempotency-Key", "x");
    const Result<Response> response = client.send(request);
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->body, "ok");
  }
}

TEST(Client, AReusedConnectionThatDiedIsReplaced) {
  // The peer closes after each answer although it says keep-alive.
  const ScriptedServer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  Client client({.max_idle_connections = 4});
  for (int i = 0; i < 50; ++i) {
    const Result<Response> response = client.send({Method::Get, url(server.port(), "/")});
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->body, "ok");
  }
}

TEST(Client, AProcessWithoutDescriptorsSaysSo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "SKIPPED: UBSan wants a pipe to look at a type, and here is no descriptor";
#endif
  const auto server = start(echo_router());
  const ScriptedServer silent("", true);
  ClientRequest request(Method::Get, url(silent.port(), "/"));
  request.total_timeout = milliseconds(50);
  Client client;
  std::vector<int> taken;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256);
  ::setrlimit(RLIMIT_NOFILE, &low);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) taken.push_back(fd);
  ASSERT_FALSE(taken.empty());
  // With none left its event loop cannot be made; with a few, its socket cannot; then it connects
  // to somebody who does not answer.
  int shortages = 0;
  while (!taken.empty()) {
    const Result<Response> response = client.send(request);
    ASSERT_FALSE(response.ok());
    if (response.error().code != ErrorCode::OutOfMemory) break;
    ++shortages;
    ::close(taken.back());
    taken.pop_back();
  }
  for (const int fd : taken) ::close(fd);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GE(shortages, 2);
  EXPECT_LE(shortages, 8) << "more than a request needs";
  EXPECT_EQ(client.send({Method::Get, url(server->port(), "/none")}).take().status, 404);
}

TEST(Client, APeersFrameIsBounded) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& frame :
       {"1;" + std::string(200'000, 'x'), "0\r\nA: " + std::string(200'000, 'x')}) {
    const ScriptedServer server(head + frame, true);
    ClientRequest request(Method::Get, url(server.port(), "/"));
    request.total_timeout = milliseconds(10'000);
    const Result<Response> response = Client().send(request);
    ASSERT_FALSE(response.ok());
    EXPECT_EQ(response.error().code, ErrorCode::Corrupt) << response.error().message;
  }
}

TEST(Client, HeadersCannotBeForged) {
  const auto server = start(echo_router());
  ClientRequest request(Method::Get, url(server->port(), "/none"));
  for (const char* value : {"a\r\nX-Forged: 1", "a\nb", "a\rb", "\x7f", "\x01"}) {
    request.headers.set("Authorization", value);
    EXPECT_EQ(Client().send(request).error().code, ErrorCode::InvalidArgument);
  }
}

TEST(Client, ServesManyThreads) {
  const auto server = start(echo_router());
  Client client({.max_idle_connections = 2});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client, &server] {
      for (int i = 0; i < 25; ++i) {
        const auto response = client.send({Method::Get, url(server->port(), "/none")});
        ASSERT_TRUE(response.ok()) << response.error().message;
        ASSERT_EQ(response->status, 404);
      }
    });
  }
}

}  // namespace
}  // namespace llorch::http
