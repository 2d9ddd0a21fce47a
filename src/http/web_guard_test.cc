// Which requests of web pages are served: the rules, and a server that follows them.
#include "http/web_guard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/sse.h"
#include "http/test_server.h"

namespace llorch::http {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kToken = "0123456789abcdef";
constexpr const char* kApp = "https://app.example";

Headers headers_of(std::initializer_list<std::pair<std::string, std::string>> fields) {
  Headers headers;
  for (const auto& [name, value] : fields) headers.add(name, value);
  return headers;
}

WebRules rules(bool has_token, const std::vector<std::string>& origins = {}) {
  return make_web_rules(has_token, "127.0.0.1", 8000, {}, origins).take();
}

bool passes(const WebRules& rules,
            std::initializer_list<std::pair<std::string, std::string>> fields,
            Method method = Method::Get) {
  const WebVerdict verdict = check_web(rules, method, headers_of(fields));
  if (verdict.refusal) {
    EXPECT_EQ(verdict.refusal->error.code, ErrorCode::Forbidden);
  }
  return !verdict.refusal.has_value();
}

TEST(WebRules, WithoutATokenHostIsOneOfOurs) {
  const WebRules open = rules(false);
  for (const char* host : {"127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LocalHost:8000"})
    EXPECT_TRUE(passes(open, {{"Host", host}})) << host;
  for (const char* host :
       {"", "127.0.0.1", "localhost", "127.0.0.1:8001", "evil.example", "evil.example:8000",
        "127.0.0.1:8000.evil.example", "localhost.:8000", "127.0.0.1:08000", "127.1:8000",
        "user@localhost:8000", "0.0.0.0:8000", "localhost:8000, localhost:8000"})
    EXPECT_FALSE(passes(open, {{"Host", host}})) << host;
  EXPECT_FALSE(passes(open, {})) << "HTTP/1.0 may leave it out";
  EXPECT_TRUE(passes(rules(true), {{"Host", "box.lan"}})) << "with a token it is free";

  const WebRules usual = make_web_rules(false, "127.0.0.7", 80, {}, {}).take();
  for (const char* host : {"localhost", "localhost:80", "127.0.0.7", "127.0.0.7:80"})
    EXPECT_TRUE(passes(usual, {{"Host", host}})) << host;
}

TEST(WebRules, TheAddressOfAllIsNoName) {
  for (const auto& [listen, host] :
       {std::pair{"0.0.0.0", "0.0.0.0:8000"}, std::pair{"::", "[::]:8000"}}) {
    const WebRules open = make_web_rules(false, listen, 8000, {}, {}).take();
    EXPECT_FALSE(passes(open, {{"Host", host}})) << listen;
    EXPECT_TRUE(passes(open, {{"Host", "127.0.0.1:8000"}})) << listen;
  }
}

TEST(WebRules, OnlyOurOwnPagesAndAllowedOnesMayAsk) {
  const std::pair<std::string, std::string> host{"Host", "127.0.0.1:8000"};
  for (const WebRules& open : {rules(false), rules(false, {kApp})}) {
    EXPECT_TRUE(passes(open, {host}));
    EXPECT_TRUE(passes(open, {host, {"Origin", "http://127.0.0.1:8000"}}));
    EXPECT_TRUE(passes(open, {host, {"Origin", "http://localhost:8000"}}));
    EXPECT_TRUE(passes(open, {host, {"Sec-Fetch-Site", "same-origin"}}));
    EXPECT_TRUE(passes(open, {host, {"Sec-Fetch-Site", "none"}}));
    for (const char* origin : {"https://evil.example", "null", "", "http://localhost:3000",
                               "https://localhost:8000", "http://127.0.0.1:8000.evil.example",
                               "https://app.example.evil", "https://app.example:8443"})
      EXPECT_FALSE(passes(open, {host, {"Origin", origin}})) << origin;
    EXPECT_FALSE(passes(open, {host, {"Sec-Fetch-Site", "cross-site"}}));
    EXPECT_FALSE(passes(open, {host, {"Origin", kApp}, {"Origin", "http://127.0.0.1:8000"}}));
  }
  EXPECT_FALSE(passes(rules(false), {host, {"Origin", kApp}}));
  EXPECT_TRUE(
      passes(rules(false, {kApp}), {host, {"Origin", kApp}, {"Sec-Fetch-Site", "cross-site"}}));

  EXPECT_FALSE(passes(rules(true), {host, {"Origin", kApp}}));
  EXPECT_FALSE(passes(rules(true), {host, {"Origin", "http://127.0.0.1:8000"}}));
  EXPECT_TRUE(passes(rules(true, {kApp}), {{"Host", "box"}, {"Origin", kApp}}));
  EXPECT_TRUE(passes(rules(true, {"*"}), {{"Host", "box"}, {"Origin", "https://any.example"}}));
  EXPECT_FALSE(passes(rules(true, {"*"}), {{"Host", "box"}, {"Origin", "null"}}));
}

TEST(WebRules, OriginsAreReadAsBrowsersWriteThem) {
  EXPECT_EQ(parse_origin("HTTPS://App.Example:443").take(), "https://app.example");
  EXPECT_EQ(parse_origin("http://localhost:3000").take(), "http://localhost:3000");
  EXPECT_EQ(parse_origin("http://[::1]:80").take(), "http://[::1]");
  EXPECT_EQ(parse_origin("chrome-extension://abc").take(), "chrome-extension://abc");
  for (const char* bad :
       {"", "null", "app.example", "https://", "https://a/", "https://a/b", "https://a,https://b",
        "https://*.example", "https://a b", "://a", "https://a\r\nX: y", "https://:80"})
    EXPECT_FALSE(parse_origin(bad).ok()) << bad;
  const auto any = make_web_rules(false, "127.0.0.1", 1, {}, {"*"});
  ASSERT_FALSE(any.ok());
  EXPECT_THAT(any.error().message, HasSubstr("token"));
}

TEST(CheckMedia, EveryPostIsJson) {
  const Headers json = headers_of({{"Content-Type", "Application/JSON; charset=utf-8"}});
  const Headers text = headers_of({{"Content-Type", "text/plain"}});
  const Headers almost = headers_of({{"Content-Type", "application/json-seq"}});
  for (const Method method : {Method::Post, Method::Put, Method::Patch, Method::Delete}) {
    EXPECT_TRUE(check_media(method, json).ok());
    Headers packed = json;
    packed.set("Content-Encoding", "gzip");
    EXPECT_EQ(check_media(method, packed).error().code, ErrorCode::UnsupportedMedia);
    packed.set("Content-Encoding", "Identity");
    EXPECT_TRUE(check_media(method, packed).ok());
    EXPECT_EQ(check_media(method, text).error().code, ErrorCode::UnsupportedMedia);
    EXPECT_FALSE(check_media(method, almost).ok());
    EXPECT_EQ(check_media(method, {}).ok(), method != Method::Post);
  }
  EXPECT_TRUE(check_media(Method::Get, text).ok());
}

// A server that says how often its one action was run.
class WebServer : public ::testing::Test {
 protected:
  std::unique_ptr<Server> serve(ServerOptions options) {
    Router router;
    router.add(Method::Post, "/act", [this](const Request&) -> Result<Response> {
      ++acts_;
      return Response(200, "text/plain", "done");
    });
    router.add(Method::Get, "/events", [](const Request&, Responder& responder) -> Task<Status> {
      Result<Stream> stream = co_await responder.open_stream(200, std::string(kEventStreamType));
      if (!stream.ok()) co_return stream.error();
      co_return co_await stream->write("data: x\n\n");
    });
    options.more_hosts = {};
    options.paths_without_auth = {"/events"};
    return start(std::move(router), std::move(options));
  }

  static std::string ask(const Server& server, std::string_view line, std::string_view fields) {
    RawSocket socket(server.port());
    EXPECT_TRUE(
        socket.send(fmt::format("{} HTTP/1.1\r\nConnection: close\r\n{}\r\n", line, fields)));
    return socket.read_all();
  }

  static std::string host(const Server& server) {
    return fmt::format("Host: 127.0.0.1:{}\r\n", server.port());
  }

  std::atomic<int> acts_ = 0;
};

TEST_F(WebServer, PagesCannotAct) {
  const auto server = serve(plain_options());
  const std::string json = "Content-Type: application/json\r\n";
  const std::string own = host(*server);
  for (const auto& [fields, status] :
       {std::pair("Host: evil.example\r\n" + json, 403),
        std::pair(fmt::format("Host: evil.example:{}\r\n", server->port()) + json, 403),
        std::pair(own + json + "Origin: https://evil.example\r\n", 403),
        std::pair(own + json + "Origin: null\r\n", 403),
        std::pair(own + json + "Sec-Fetch-Site: cross-site\r\n", 403), std::pair(own, 415),
        std::pair(own + "Content-Type: text/plain\r\n", 415),
        std::pair(own + "Content-Type: application/x-www-form-urlencoded\r\n", 415)}) {
    EXPECT_EQ(status_of(ask(*server, "POST /act", fields + "Content-Length: 0\r\n")), status)
        << fields;
    EXPECT_EQ(status_of(ask(*server, "POST /act", fields)), status) << fields;
  }
  EXPECT_EQ(acts_, 0);
  const std::string preflight = ask(*server, "OPTIONS /act",
                                    own +
                                        "Origin: https://evil.example\r\n"
                                        "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(status_of(preflight), 403);
  EXPECT_EQ(header_of(preflight, "access-control-allow-origin"), "");
  EXPECT_EQ(status_of(ask(*server, "POST /act", own + json)), 200);
  EXPECT_EQ(acts_, 1);
}

TEST_F(WebServer, OneOfManyTokensOpensOtherNames) {
  ServerOptions options = plain_options();
  options.accepts_token = [](std::string_view token) { return token == "one-of-many"; };
  const auto server = serve(options);
  const std::string own = fmt::format("Host: 127.0.0.1:{}\r\n", server->port());
  const std::string good = "Authorization: Bearer one-of-many\r\n";
  const std::string bad = "Authorization: Bearer another\r\n";
  const std::string json = "Content-Type: application/json\r\nContent-Length: 0\r\n";
  EXPECT_EQ(status_of(ask(*server, "POST /act", own + json)), 200) << "loopback needs none";
  EXPECT_EQ(status_of(ask(*server, "POST /act", own + bad + json)), 200) << "as without";
  EXPECT_EQ(status_of(ask(*server, "POST /act", "Host: box.lan\r\n" + json)), 403);
  EXPECT_EQ(status_of(ask(*server, "POST /act", "Host: box.lan\r\n" + bad + json)), 403);
  EXPECT_EQ(status_of(ask(*server, "POST /act", "Host: box.lan\r\n" + good + json)), 200);
  EXPECT_EQ(acts_, 3);
  options.host = "0.0.0.0";
  EXPECT_TRUE(Server::start({}, options).ok());
}

TEST_F(WebServer, AllowedPagesAreToldThatTheyMay) {
  ServerOptions options = plain_options();
  options.bearer_token = kToken;
  options.allowed_origins = {kApp};
  const auto server = serve(options);
  const std::string from = fmt::format("Host: box.lan\r\nOrigin: {}\r\n", kApp);
  const std::string preflight =
      ask(*server, "OPTIONS /act",
          from +
              "Access-Control-Request-Method: POST\r\n"
              "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"
              "Access-Control-Request-Private-Network: true\r\n");
  EXPECT_EQ(status_of(preflight), 204) << "a browser sends no token with it";
  EXPECT_EQ(header_of(preflight, "access-control-allow-origin"), kApp);
  EXPECT_THAT(header_of(preflight, "access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_THAT(header_of(preflight, "access-control-allow-headers"), HasSubstr("x-stainless-os"));
  EXPECT_EQ(header_of(preflight, "access-control-max-age"), "600");
  EXPECT_EQ(header_of(preflight, "access-control-allow-private-network"), "true");
  EXPECT_EQ(header_of(preflight, "vary"), "Origin");

  const std::string json = "Content-Type: application/json\r\nContent-Length: 0\r\n";
  const std::string key = fmt::format("Authorization: Bearer {}\r\n", kToken);
  for (const auto& [answer, status] : {std::pair(ask(*server, "POST /act", from + json + key), 200),
                                       std::pair(ask(*server, "POST /act", from + json), 401),
                                       std::pair(ask(*server, "GET /nothing", from + key), 404),
                                       std::pair(ask(*server, "GET /events", from), 200)}) {
    EXPECT_EQ(status_of(answer), status);
    EXPECT_EQ(header_of(answer, "access-control-allow-origin"), kApp) << answer;
    EXPECT_THAT(header_of(answer, "access-control-expose-headers"), HasSubstr("X-Correlation-Id"));
    EXPECT_EQ(header_of(answer, "vary"), "Origin");
  }
  const std::string other =
      ask(*server, "POST /act", "Host: box.lan\r\nOrigin: https://evil.example\r\n" + json + key);
  EXPECT_EQ(status_of(other), 403);
  EXPECT_EQ(header_of(other, "access-control-allow-origin"), "");
  const std::string program = ask(*server, "POST /act", "Host: box.lan\r\n" + json + key);
  EXPECT_EQ(status_of(program), 200);
  EXPECT_EQ(header_of(program, "access-control-allow-origin"), "");
  EXPECT_EQ(header_of(program, "vary"), "Origin") << "a cache keeps the two apart";
  EXPECT_EQ(acts_, 2);
}

TEST_F(WebServer, AnyPageNeedsAToken) {
  ServerOptions options = plain_options();
  options.allowed_origins = {"*"};
  Router router;
  EXPECT_FALSE(Server::start(std::move(router), options).ok());
  options.bearer_token = kToken;
  EXPECT_TRUE(Server::start(Router(), options).ok());
  options.allowed_origins = {"app.example"};
  const auto refused = Server::start(Router(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("http://localhost:3000"));
}

}  // namespace
}  // namespace llorch::http
