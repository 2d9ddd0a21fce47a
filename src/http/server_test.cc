// The server as a client sees it, over real sockets.
#include "http/server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <vector>

#include "http/test_server.h"

namespace llorch::http {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Tells back what arrived.
Router echo_router() {
  Router router = test::echo_router();
  router.add(Method::Get, "/items/{id}", [](const Request& request) -> Result<Response> {
    const auto q = request.query.find("q");
    return Response(200, "text/plain",
                    fmt::format("id={} q={} loopback={} deadline={}", request.path_params.at("id"),
                                q == request.query.end() ? "-" : q->second, request.from_loopback,
                                request.deadline.has_value()));
  });
  router.add(Method::Post, "/small",
             [](const Request& request) -> Result<Response> {
               return Response(200, "text/plain", request.body);
             },
             {.max_body_bytes = 4, .render_error = {}});
  router.add(Method::Get, "/none", [](const Request&) -> Result<Response> {
    Response response;
    response.status = 204;
    return response;
  });
  router.add(Method::Get, "/error", [](const Request&) -> Result<Response> {
    return Error{ErrorCode::NotFound, "no such thing"};
  });
  return router;
}

std::string ask(std::uint16_t port, std::string_view request) {
  RawSocket socket(port);
  EXPECT_TRUE(socket.send(request));
  return socket.read_response();
}

TEST(Server, KeepsTheConnectionForTheNextRequest) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(socket.send(get("/health")));
    const std::string response = socket.read_response();
    EXPECT_EQ(status_of(response), 200);
    EXPECT_EQ(body_of(response), "fine");
    EXPECT_EQ(header_of(response, "connection"), "keep-alive");
    EXPECT_EQ(header_of(response, "content-type"), "text/plain");
    EXPECT_THAT(header_of(response, "date"), HasSubstr(" GMT"));
  }
  ASSERT_TRUE(socket.send(get("/health", "Connection: close\r\n")));
  EXPECT_EQ(header_of(socket.read_response(), "connection"), "close");
  EXPECT_TRUE(socket.is_closed_by_peer());
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += post("/echo", fmt::format("number {}", i)) + get("/nowhere");
  ASSERT_TRUE(socket.send(all));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(body_of(socket.read_response()), fmt::format("number {}", i));
    EXPECT_EQ(status_of(socket.read_response()), 404);
  }
}

TEST(Server, TakesARequestByteByByte) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  for (const char c : post("/echo", "slowly")) ASSERT_TRUE(socket.send({&c, 1}));
  EXPECT_EQ(body_of(socket.read_response()), "slowly");
}

TEST(Server, ReadsChunkedBodies) {
  const auto server = start(echo_router());
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n";
  EXPECT_EQ(
      body_of(ask(server->port(), head + "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n")),
      "abcdefg");
  EXPECT_EQ(status_of(ask(server->port(), head + "zz\r\nabc\r\n")), 400);
  EXPECT_EQ(status_of(ask(server->port(), head + "3\r\nabcdef\r\n")), 400);
  EXPECT_EQ(status_of(ask(server->port(), head + "ffffffffffffffffff\r\nabc\r\n")), 400);
}

TEST(Server, HeadHasTheHeadOfGetAndNoBody) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send("HEAD /health HTTP/1.1\r\nHost: t\r\n\r\n"));
  const std::string head = socket.read_until("\r\n\r\n");
  EXPECT_EQ(status_of(head), 200);
  EXPECT_EQ(header_of(head, "content-length"), "4");
  ASSERT_TRUE(socket.send(get("/health")));
  EXPECT_EQ(body_of(socket.read_response()), "fine") << "a body after HEAD would stand here";
}

TEST(Server, NoContentHasNoLength) {
  const auto server = start(echo_router());
  const std::string response = ask(server->port(), get("/none"));
  EXPECT_EQ(status_of(response), 204);
  EXPECT_EQ(header_of(response, "content-length"), "");
}

TEST(Server, SaysContinueBeforeAnExpectedBody) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  ASSERT_TRUE(
      socket.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: "
                  "application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(status_of(socket.read_until("\r\n\r\n")), 100);
  ASSERT_TRUE(socket.send("ok"));
  EXPECT_EQ(body_of(socket.read_response()), "ok");

  RawSocket refused(server->port());
  ASSERT_TRUE(
      refused.send("POST /small HTTP/1.1\r\nHost: t\r\nContent-Type: "
                   "application/json\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(status_of(refused.read_response()), 413)
      << "a body that is refused anyway is not asked for";
}

TEST(Server, OldClientsAreAnsweredAndClosed) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send("GET /health HTTP/1.0\r\nHost: t\r\n\r\n"));
  EXPECT_EQ(body_of(socket.read_all()), "fine");
}

TEST(Server, DecodesPathAndQuery) {
  const auto server = start(echo_router());
  EXPECT_EQ(body_of(ask(server->port(), get("/items/a%2Fb%20c?q=x%26+y"))),
            "id=a/b c q=x& y loopback=true deadline=false");
  EXPECT_EQ(status_of(ask(server->port(), get("/items/%zz"))), 400);
  EXPECT_EQ(status_of(ask(server->port(), get("/items/a?q=1&q=2"))), 400);
}

TEST(Server, UnknownPathsAndMethodsAreErrorsOfTheRenderer) {
  const auto server = start(echo_router());
  const std::string absent = ask(server->port(), get("/nothing", "X-Correlation-Id: c-1\r\n"));
  EXPECT_EQ(status_of(absent), 404);
  EXPECT_EQ(body_of(absent), "c-1: nothing is served at /nothing");
  const std::string wrong = ask(server->port(), post("/health", ""));
  EXPECT_EQ(status_of(wrong), 405);
  EXPECT_EQ(header_of(wrong, "allow"), "GET, HEAD");
  EXPECT_EQ(status_of(ask(server->port(), "BREW /health HTTP/1.1\r\nHost: t\r\n\r\n")), 405);
  EXPECT_EQ(body_of(ask(server->port(), get("/error", "X-Correlation-Id: c-2\r\n"))),
            "c-2: no such thing");
}

TEST(Server, ARouteMayRenderItsErrorsItself) {
  Router router;
  const RenderError other = [](const Error&, std::string_view) {
    return ErrorBody{.status = 418, .content_type = "text/x", .body = "mine", .headers = {}};
  };
  router.add(Method::Post, "/v1/x", [](const Request&) -> Result<Response> { return Error{}; },
             {.max_body_bytes = 1, .render_error = other});
  const auto server = start(std::move(router));
  EXPECT_EQ(body_of(ask(server->port(), post("/v1/x", ""))), "mine");
  EXPECT_EQ(body_of(ask(server->port(), post("/v1/x", "too long"))), "mine");
  EXPECT_EQ(body_of(ask(server->port(), post("/v1/x", "", "X-Deadline: 5\r\n"))), "mine");
}

TEST(Server, PathsBelowAFolderHaveItsErrorsWithoutARoute) {
  Router router = echo_router();
  const RenderError other = [](const Error& error, std::string_view) {
    const int status = error.code == ErrorCode::NotFound ? 404 : 405;
    return ErrorBody{.status = status, .content_type = "text/x", .body = "mine", .headers = {}};
  };
  router.add(Method::Post, "/v1/x", [](const Request&) -> Result<Response> { return Error{}; });
  router.answer_below("/v1", {.render_error = other});
  const auto server = start(std::move(router));
  for (const auto& [answer, status] : {std::pair{ask(server->port(), get("/v1/nothing/here")), 404},
                                       std::pair{ask(server->port(), get("/v1/x")), 405}}) {
    EXPECT_EQ(body_of(answer), "mine");
    EXPECT_EQ(status_of(answer), status);
  }
  EXPECT_NE(body_of(ask(server->port(), get("/v1nothing"))), "mine");
}

TEST(Server, CorrelationIdsAreKeptOrMadeAndAlwaysEchoed) {
  const auto server = start(echo_router());
  EXPECT_EQ(header_of(ask(server->port(), get("/health", "X-Correlation-Id: abc-1\r\n")),
                      "x-correlation-id"),
            "abc-1");
  EXPECT_EQ(header_of(ask(server->port(), get("/nothing", "X-Correlation-Id: abc-2\r\n")),
                      "x-correlation-id"),
            "abc-2");
  const std::string made = header_of(
      ask(server->port(), get("/health", "X-Correlation-Id: a b\r\n")), "x-correlation-id");
  EXPECT_EQ(made.size(), 32u);
  EXPECT_EQ(header_of(ask(server->port(), "garbage\r\n\r\n"), "x-correlation-id").size(), 32u);
}

TEST(Server, ADeadlineThatHasPassedIsNotServed) {
  const auto server = start(echo_router());
  EXPECT_EQ(status_of(ask(server->port(), get("/items/1", "X-Deadline: 1000\r\n"))), 504);
  EXPECT_EQ(status_of(ask(server->port(), get("/items/1", "X-Deadline: tomorrow\r\n"))), 400);
  EXPECT_THAT(ask(server->port(), get("/items/1", "X-Deadline: 8000000000000\r\n")),
              HasSubstr("deadline=true"));
}

TEST(Server, WithATokenEveryPathButTheExemptNeedsIt) {
  ServerOptions options = plain_options();
  options.bearer_token = "0123456789abcdef";
  options.paths_without_auth = {"/health"};
  const auto server = start(echo_router(), options);
  EXPECT_EQ(status_of(ask(server->port(), get("/health"))), 200);
  const std::string refused = ask(server->port(), get("/items/1"));
  EXPECT_EQ(status_of(refused), 401);
  EXPECT_EQ(header_of(refused, "www-authenticate"), "Bearer");
  EXPECT_EQ(status_of(ask(server->port(), get("/unknown"))), 401)
      << "strangers learn nothing about the paths";
  EXPECT_EQ(
      status_of(ask(server->port(), get("/items/1", "Authorization: Bearer 0123456789abcdeg\r\n"))),
      401);
  EXPECT_EQ(
      status_of(ask(server->port(), get("/items/1", "Authorization: Bearer 0123456789abcdef\r\n"))),
      200);
}

TEST(Server, RefusesWhatIsTooLarge) {
  ServerOptions options = plain_options();
  options.max_header_bytes = 2048;
  options.max_header_fields = 10;
  options.max_target_bytes = 100;
  options.max_body_bytes = 1000;
  const auto server = start(echo_router(), options);
  const auto port = server->port();
  EXPECT_EQ(status_of(ask(port, get("/health", "A: " + std::string(3000, 'x') + "\r\n"))), 431);
  std::string many;
  for (int i = 0; i < 10; ++i) many += fmt::format("H{}: 1\r\n", i);
  EXPECT_EQ(status_of(ask(port, get("/health", many))), 431);
  EXPECT_EQ(status_of(ask(port, get("/" + std::string(100, 'x')))), 414);
  EXPECT_EQ(status_of(ask(port, post("/echo", std::string(1001, 'x')))), 413);
  EXPECT_EQ(status_of(ask(port, post("/echo", std::string(1000, 'x')))), 200);
  EXPECT_EQ(status_of(ask(port, post("/small", "12345"))), 413);
  EXPECT_EQ(status_of(ask(port, post("/small", "1234"))), 200);
  const std::string chunked =
      "POST /small HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n";
  EXPECT_EQ(status_of(ask(port, chunked + "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")), 413);
  EXPECT_EQ(status_of(ask(port, chunked + "7fffffffffffffff\r\nabc")), 413);
  EXPECT_EQ(status_of(ask(port,
                          "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: "
                          "application/json\r\nContent-Length: 18446744073709551615\r\n\r\n")),
            413);
}

TEST(Server, TheAnswerToAHugeBodyArrivesAlthoughTheBodyIsNotRead) {
  const auto server = start(echo_router());
  RawSocket socket(server->port());
  EXPECT_TRUE(socket.send(post("/small", std::string(std::size_t{2} << 20, 'x'))));
  EXPECT_EQ(status_of(socket.read_response()), 413);
  EXPECT_TRUE(socket.is_closed_by_peer());
}

TEST(Server, RefusesMalformedAndAmbiguousRequests) {
  const auto server = start(echo_router());
  for (const std::string_view request : {
           "GET\r\n\r\n",
           "GET /health\r\n\r\n",
           "GET /health HTTP/9.9\r\n\r\n",
           "GET  HTTP/1.1\r\n\r\n",
           "G\x01T /health HTTP/1.1\r\nHost: t\r\n\r\n",
           "GET /health HTTP/1.1\r\nHost t\r\n\r\n",
           "GET /health HTTP/1.1\r\n: t\r\n\r\n",
           "GET /health HTTP/1.1\r\n\r\n",
           "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET health HTTP/1.1\r\nHost: t\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
           "x\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
           "-1\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
           "1\r\nContent-Length: 2\r\n\r\nab",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
           "1\r\nTransfer-Encoding: "
           "chunked\r\n\r\n0\r\n\r\n",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
           "gzip\r\n\r\nab",
           "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
           "gzip, chunked\r\n\r\n0\r\n\r\n",
       }) {
    EXPECT_EQ(status_of(ask(server->port(), request)), 400) << request;
  }
  EXPECT_EQ(status_of(ask(server->port(), get("/health"))), 200);
}

TEST(Server, ExceptionsInHandlersEndOnlyTheirRequest) {
  Router router = echo_router();
  router.add(Method::Get, "/throw",
             [](const Request&) -> Result<Response> { throw std::runtime_error("oops"); });
  router.add(Method::Get, "/memory",
             [](const Request&) -> Result<Response> { throw std::bad_alloc(); });
  router.add(Method::Get, "/int", [](const Request&) -> Result<Response> { throw 7; });
  router.add(Method::Get, "/silent",
             [](const Request&, Responder&) -> Task<Status> { co_return ok_status(); });
  const auto server = start(std::move(router));
  RawSocket socket(server->port());
  for (const auto& [path, status] :
       {std::pair("/throw", 500), std::pair("/memory", 507), std::pair("/int", 500),
        std::pair("/silent", 500), std::pair("/health", 200)}) {
    ASSERT_TRUE(socket.send(get(path)));
    EXPECT_EQ(status_of(socket.read_response()), status) << path;
  }
}

TEST(Server, HeaderValuesCannotForgeHeaders) {
  Router router;
  router.add(Method::Get, "/", [](const Request&) -> Result<Response> {
    Response response;
    response.headers.add("X-A", "1\r\nX-Forged: 2");
    response.headers.add("X-B: y\r\nX-Forged", "3");
    response.headers.add("Content-Length", "999");
    return response;
  });
  const auto server = start(std::move(router));
  const std::string response = ask(server->port(), get("/"));
  EXPECT_EQ(header_of(response, "x-forged"), "");
  EXPECT_EQ(header_of(response, "x-a"), "1  X-Forged: 2");
  EXPECT_EQ(header_of(response, "content-length"), "0");
}

TEST(Server, SaysThatAPortIsTaken) {
  const auto server = start(echo_router());
  ServerOptions options = plain_options();
  options.port = server->port();
  const auto second = Server::start(echo_router(), options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::Conflict);
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("127.0.0.1:{}", server->port())));
}

TEST(Server, RefusesAddressesThatOthersReachWithoutALongToken) {
  ServerOptions options = plain_options();
  for (const char* host : {"0.0.0.0", "::"}) {
    options.host = host;
    options.bearer_token = "fifteen-letters";
    const auto refused = Server::start(echo_router(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("16"));
  }
  options.host = "0.0.0.0";
  options.bearer_token = "sixteen-letters!";
  EXPECT_TRUE(Server::start(echo_router(), options).ok());
  options.host = "not an address";
  EXPECT_EQ(Server::start(echo_router(), options).error().code, ErrorCode::InvalidArgument);
}

TEST(Server, SurvivesTenThousandGarbageRequests) {
  ServerOptions options = plain_options();
  options.header_timeout = options.body_timeout = options.idle_timeout = milliseconds(200);
  options.max_connections = 100'000;
  const auto server = start(echo_router(), options);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::string samples[] = {
      get("/items/a%20b?q=1", "X-Deadline: 8000000000000\r\n"), post("/echo", "hello"),
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"};
  for (int i = 0; i < 10'000; ++i) {
    std::string request = samples[random() % 3];
    if (i % 4 == 0) {
      request.resize(random() % 300);
      for (char& c : request) c = static_cast<char>(random());
    } else {
      for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
        request[random() % request.size()] = static_cast<char>(random());
      }
      if (i % 4 == 1) request.resize(random() % request.size());
    }
    RawSocket socket(server->port());
    socket.send(request);
    // Waiting for the server's end makes sure that it has seen every byte; a reset alone could
    // discard them.
    socket.shutdown_send();
    socket.read_all();
    socket.reset();
  }
  EXPECT_EQ(status_of(ask(server->port(), get("/health"))), 200);
}

}  // namespace
}  // namespace llorch::http
