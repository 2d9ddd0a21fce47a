// What a stranger can make a server hold or misread with the frame of a request alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "http/server.h"
#include "http/test_server.h"

namespace llorch::http {
namespace {

using ::testing::HasSubstr, ::testing::Not;

constexpr std::string_view kToken = "0123456789abcdef";
constexpr std::size_t kFlood = std::size_t{50} << 20;
[[maybe_unused]] constexpr std::size_t kGrowthMax = std::size_t{4} << 20;

Router make_router() {
  Router router = test::echo_router();
  router.add(Method::Post, "/hook",
             [](const Request& request) -> Result<Response> {
               return Response(200, "text/plain", request.body);
             },
             {.max_body_bytes = 8, .render_error = {}});
  return router;
}

ServerOptions guarded_options() {
  ServerOptions options = plain_options();
  options.bearer_token = kToken;
  options.paths_without_auth = {"/health", "/hook"};
  return options;
}

std::string chunked_head(std::string_view path) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n",
      path);
}

// Sends `piece` again and again until the server takes no more or kFlood bytes are through, then
// tells what the server answered and how much its process grew.
struct Flooded {
  int status = 0;
  std::size_t growth = 0;
};
Flooded flood(std::uint16_t port, std::string_view head, std::string_view piece) {
  const std::size_t before = test::resident_bytes();
  std::size_t most = before;
  RawSocket socket(port);
  bool is_open = socket.send(head);
  std::size_t sent = 0;
  for (std::size_t i = 0; is_open && sent < kFlood; ++i) {
    is_open = socket.send(piece);
    sent += piece.size();
    if (i % 64 == 0) most = std::max(most, test::resident_bytes());
  }
  most = std::max(most, test::resident_bytes());
  return {status_of(socket.read_response()), most - before};
}

TEST(Framing, ExtensionsAndTrailersDoNotPileUp) {
  const auto server = start(make_router());
  const std::string letters(16 * 1024, 'x');
  const std::string chunk = "1;a=" + std::string(1000, 'x') + "\r\nb\r\n";
  const std::string field = "A: " + std::string(1000, 'x') + "\r\n";
  for (const auto& [head, piece] :
       {std::pair(chunked_head("/echo") + "1;", letters),             // a line without an end
        std::pair(chunked_head("/echo"), chunk),                      // many short ones
        std::pair(chunked_head("/echo") + "1\r\nb\r\n0\r\n", field),  // trailers
        std::pair(chunked_head("/echo") + std::string(), std::string(16 * 1024, '0'))}) {
    const Flooded flooded = flood(server->port(), head, piece);
    EXPECT_EQ(flooded.status, 400) << head;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(flooded.growth, kGrowthMax) << head;
#endif
  }
}

TEST(Framing, AFewExtensionsAndTrailersAreFine) {
  const auto server = start(make_router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(chunked_head("/echo") +
                          "3;name=value;q=\"a b\"\r\nabc\r\n0;z\r\nTrailer: " +
                          std::string(1000, 'x') + "\r\n\r\n" + get("/health")));
  EXPECT_EQ(test::body_of(socket.read_response()), "abc");
  EXPECT_EQ(test::body_of(socket.read_response()), "fine");
}

TEST(Framing, TrailersAboveTheirBoundAreRefusedHoweverTheyCome) {
  const auto server = start(make_router());
  const auto status_with = [&](std::size_t trailer_bytes) {
    RawSocket socket(server->port());
    std::string trailers;
    while (trailers.size() < trailer_bytes) trailers += "A: " + std::string(95, 'x') + "\r\n";
    EXPECT_TRUE(socket.send(chunked_head("/echo") + "1\r\nb\r\n0\r\n" + trailers + "\r\n"));
    return status_of(socket.read_response());
  };
  EXPECT_EQ(status_with(15'000), 200);
  EXPECT_EQ(status_with(17'000), 400);
  EXPECT_EQ(status_with(30'000), 400);
}

TEST(Framing, AFieldThatGoesOnInTheNextLineIsRefused) {
  const auto server = start(make_router());
  for (const char* folded : {"Transfer-Encoding:\r\n chunked", "Transfer-Encoding: chunked\r\n\t",
                             "X-A: b\r\n Content-Length: 4", "X-A: b\r\n  "}) {
    RawSocket socket(server->port());
    EXPECT_TRUE(socket.send(
        fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n{}\r\n\r\n"
                    "4\r\nbody\r\n0\r\n\r\n",
                    folded)));
    EXPECT_EQ(status_of(socket.read_response()), 400) << folded;
  }
  // In a body it is nothing.
  RawSocket socket(server->port());
  EXPECT_TRUE(socket.send(chunked_head("/echo") + "4\r\n\r\n \t\r\n0\r\n\r\n"));
  EXPECT_EQ(status_of(socket.read_response()), 200);
}

TEST(Framing, WhatComesAheadIsNotReadWithoutBound) {
  test::Gate entered;
  test::Gate leave;
  Router router;
  router.add(Method::Get, "/slow", [&](const Request&) -> Result<Response> {
    entered.open();
    leave.wait();
    return Response(200, "text/plain", "done");
  });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/slow")));
  ASSERT_TRUE(entered.wait());
  [[maybe_unused]] const std::size_t before = test::resident_bytes();
  leave.open();
  std::string ahead;
  for (int i = 0; i < 1000; ++i) ahead += get("/slow");
  std::size_t answers = 0;
  ASSERT_TRUE(socket.send(ahead));
  for (int i = 0; i < 1001; ++i) answers += status_of(socket.read_response()) == 200 ? 1U : 0U;
  EXPECT_EQ(answers, 1001u) << "all of them are answered, in order";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(test::resident_bytes(), before + kGrowthMax);
#endif
}

TEST(Framing, OpenPathsTakeNoBody) {
  const auto server = start(make_router(), guarded_options());
  const auto refusal_of = [&](const std::string& request) {
    RawSocket socket(server->port());
    EXPECT_TRUE(socket.send(request));
    const std::string answer = socket.read_response();
    socket.shutdown_send();
    EXPECT_TRUE(socket.is_closed_by_peer()) << "the body would be the next request";
    return status_of(answer);
  };
  EXPECT_EQ(refusal_of("GET /health HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc"), 413);
  EXPECT_EQ(refusal_of("GET /health HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"),
            413);
  EXPECT_EQ(refusal_of("GET /health HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n"
                       "Expect: 100-continue\r\n\r\n"),
            413);
  EXPECT_EQ(refusal_of(post("/health", "abc")), 405);
  EXPECT_EQ(refusal_of(post("/hook", "123456789")), 413) << "what its route allows, and no more";
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(post("/hook", "12345678") +
                          "GET /health HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_EQ(status_of(socket.read_response()), 200);
  EXPECT_EQ(status_of(socket.read_response()), 200);
  const std::string body(std::size_t{1} << 20, 'x');
  EXPECT_EQ(refusal_of(post("/echo", body)), 401) << "a stranger's body is not read";
}

// The second request of each is what a body smuggles in; nobody may ever answer it.
TEST(Framing, ABodyNeverBecomesTheNextRequest) {
  const auto server = start(make_router());
  const std::string hidden = get("/health");
  const std::string as_chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", hidden.size(), hidden);
  const std::string length = fmt::format("Content-Length: {}\r\n", hidden.size());
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  std::vector<std::pair<std::string, std::string>> requests;  // fields, body
  for (const char* encoding :
       {"identity", "gzip", "xchunked", "chunked, gzip", "gzip, chunked", "chunked, chunked",
        "chunked, identity", "\"chunked\"", "chunked;q=1", "chunked,", ", chunked", "chun ked", "",
        "x", "chunked\t,", "\vchunked"}) {
    requests.emplace_back(fmt::format("Transfer-Encoding: {}\r\n", encoding), hidden);
    requests.emplace_back(fmt::format("Transfer-Encoding: {}\r\n", encoding), as_chunk);
  }
  requests.emplace_back(length + chunked, as_chunk);
  requests.emplace_back(chunked + length, as_chunk);
  requests.emplace_back(length + "Transfer-Encoding: identity\r\n", hidden);
  requests.emplace_back(length + length, hidden);
  requests.emplace_back("Content-Length: 0\r\n" + length, hidden);
  requests.emplace_back(length + "Content-Length: 0\r\n", hidden);
  requests.emplace_back(fmt::format("Content-Length: {0}, {0}\r\n", hidden.size()), hidden);
  requests.emplace_back(fmt::format("Content-Length: +{}\r\n", hidden.size()), hidden);
  requests.emplace_back("Content-Length: 0x10\r\n", hidden);
  requests.emplace_back("Content-Length:\r\n", hidden);
  requests.emplace_back(chunked + chunked, as_chunk);
  requests.emplace_back(chunked + "Transfer-Encoding: identity\r\n", as_chunk);
  requests.emplace_back("Transfer-Encoding : chunked\r\n", as_chunk);
  requests.emplace_back("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n" + length, hidden);
  requests.emplace_back("Authorization: Bearer a\r\nauthorization: Bearer a\r\n", hidden);
  requests.emplace_back("Host: other\r\n" + length, hidden);
  for (const auto& [fields, body] : requests) {
    RawSocket socket(server->port());
    ASSERT_TRUE(socket.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n" +
                            fields + "\r\n" + body));
    socket.shutdown_send();
    const std::string all = socket.read_all();
    EXPECT_EQ(status_of(all), 400) << fields;
    EXPECT_EQ(test::header_of(all, "connection"), "close") << fields;
    for (const char* second : {"HTTP/1.1 2", "HTTP/1.1 4"})
      EXPECT_EQ(all.find(second, 1), std::string::npos) << fields << " answered twice: " << all;
    EXPECT_THAT(all, Not(HasSubstr("fine"))) << fields;
  }
}

TEST(Framing, OldRequestsHaveNoTransferEncoding) {
  const auto server = start(make_router());
  for (const char* connection : {"", "Connection: keep-alive\r\n"}) {
    RawSocket socket(server->port());
    ASSERT_TRUE(socket.send(
        fmt::format("POST /echo HTTP/1.0\r\nHost: t\r\nContent-Type: "
                    "application/json\r\n{}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
                    connection, get("/health"))));
    socket.shutdown_send();
    const std::string all = socket.read_all();
    EXPECT_EQ(status_of(all), 400);
    EXPECT_THAT(all, Not(HasSubstr("fine")));
  }
}

TEST(Framing, BodiesUnderWayHaveABoundTogether) {
  ServerOptions options = plain_options();
  options.max_body_bytes_total = 100'000;
  const auto server = start(make_router(), options);
  const std::string part(60'000, 'x');
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
      "60001\r\n\r\n";
  RawSocket first(server->port());
  RawSocket second(server->port());
  ASSERT_TRUE(first.send(head + part));
  ASSERT_TRUE(second.send(head + part));
  // Whichever comes second is refused; the other is answered once it is whole.
  first.send("y");
  second.send("y");
  const int one = status_of(first.read_response());
  const int two = status_of(second.read_response());
  EXPECT_TRUE((one == 200 || one == 503) && (two == 200 || two == 503)) << one << " " << two;
  RawSocket after(server->port());
  ASSERT_TRUE(after.send(post("/echo", part)));
  EXPECT_EQ(status_of(after.read_response()), 200) << "what was read is given back";
  RawSocket too_much(server->port());
  ASSERT_TRUE(too_much.send(post("/echo", std::string(100'001, 'x'))));
  EXPECT_EQ(status_of(too_much.read_response()), 503);
}

}  // namespace
}  // namespace llorch::http
