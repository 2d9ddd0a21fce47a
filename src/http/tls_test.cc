// TLS between our own server and client, and between each of them and curl and openssl.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <thread>

#include "http/client.h"
#include "http/test_events.h"
#include "http/test_server.h"
#include "http/tls_test_ca.h"
#include "http/url.h"
#include "support/test_paths.h"

namespace llorch::http {
namespace {

using test::CertificateWish;
using test::TestCa;
using ::testing::HasSubstr;

class Tls : public ::testing::Test {
 protected:
  Router make_router() {
    Router router = test::echo_router();
    router.add(Method::Get, "/stream",
               Handler([this](const Request&, Responder& responder) { return stream(responder); }));
    return router;
  }
  Task<Status> stream(Responder& responder) {
    responder.on_disconnect([this] { gone_.open(); });
    Result<Stream> stream = co_await responder.open_stream(200, "text/event-stream");
    if (!stream.ok()) co_return stream.error();
    const auto feed = std::make_shared<EventFeed<std::string>>(8);
    [[maybe_unused]] const bool pushed = feed->try_push("data: first\n\n");
    co_return co_await test::pump_events(*stream, feed, std::chrono::seconds(60));
  }
  std::unique_ptr<Server> serve(const TestCa::Files& files) {
    ServerOptions options = test::plain_options();
    options.tls_certificate_file = files.certificate;
    options.tls_key_file = files.key;
    return start(make_router(), options);
  }
  static ClientRequest echo(std::uint16_t port, std::string body = "hello",
                            std::string_view host = "localhost") {
    ClientRequest request(Method::Post, fmt::format("https://{}:{}/echo", host, port));
    request.body = std::move(body);
    return request;
  }

  const llorch::test::TempDir folder_;
  TestCa ca_{folder_.path() / "ca"};
  Client client_{ClientOptions{.ca_file = ca_.file()}};
  test::Gate gone_;
};

// What a command prints, both streams; nothing where there is no such program.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    out.append(bytes.data(), got);
  ::pclose(pipe);
  return out;
}

bool has_program(const char* name) {
  return !output_of(fmt::format("command -v {}", name)).empty();
}

TEST_F(Tls, CarriesWhatPlainConnectionsCarry) {
  const auto server = serve(ca_.issue("server"));
  for (const std::string_view host : {"localhost", "127.0.0.1"}) {
    const auto answer = client_.send(echo(server->port(), "hello", host));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body, "hello");
  }
  const std::string large(3'000'000, 'x');
  const auto answer = client_.send(echo(server->port(), large));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, large);
}

TEST_F(Tls, AClientThatLeavesAStreamIsNoticed) {
  const auto server = serve(ca_.issue("server"));
  const ClientRequest request(Method::Get,
                              fmt::format("https://localhost:{}/stream", server->port()));
  std::string seen;
  const auto answer = client_.stream(request, [&seen](std::string_view bytes) {
    seen += bytes;
    return seen.find("first") == std::string::npos;
  });
  EXPECT_EQ(answer.error().code, ErrorCode::Cancelled);
  EXPECT_TRUE(gone_.wait());
}

TEST_F(Tls, SaysWhatIsWrongWithACertificate) {
  const auto expired = serve(ca_.issue("expired", {.valid_from_s = -7200, .valid_to_s = -60}));
  const auto early = serve(ca_.issue("early", {.valid_from_s = 3600, .valid_to_s = 7200}));
  const auto other = serve(ca_.issue("other", {.names = "DNS:elsewhere.example"}));
  TestCa stranger(folder_.path() / "stranger");
  const auto unknown = serve(stranger.issue("unknown"));
  const auto why = [this](const Server& server) {
    const auto answer = client_.send(echo(server.port()));
    EXPECT_EQ(answer.error().code, ErrorCode::Unauthorized);
    return answer.error().message;
  };
  EXPECT_THAT(why(*expired), HasSubstr("expired on"));
  EXPECT_THAT(why(*early), HasSubstr("valid from"));
  EXPECT_THAT(why(*other), HasSubstr("not for 'localhost'"));
  EXPECT_THAT(why(*unknown), HasSubstr("name the file of its CA"));
  const auto by_address = client_.send(echo(other->port(), "x", "127.0.0.1"));
  EXPECT_THAT(by_address.error().message, HasSubstr("not for '127.0.0.1'"));
  Client system;  // of the system's authorities none knows ours
  EXPECT_EQ(system.send(echo(expired->port())).error().code, ErrorCode::Unauthorized);
}

TEST_F(Tls, PlainAndTlsDoNotMixSilently) {
  const auto plain = start(make_router());
  const auto not_tls = client_.send(echo(plain->port()));
  EXPECT_EQ(not_tls.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(not_tls.error().message, HasSubstr("does not speak TLS"));
  const auto server = serve(ca_.issue("server"));
  const auto told = client_.send(
      ClientRequest(Method::Post, fmt::format("http://127.0.0.1:{}/echo", server->port())));
  EXPECT_TRUE(!told.ok() || told->status == 400) << "served without TLS";
  test::RawSocket noise(server->port());
  noise.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_THAT(noise.read_all(), HasSubstr("https://"));
  EXPECT_TRUE(client_.send(echo(server->port())).ok()) << "the others are served";
}

TEST_F(Tls, HandshakesThatDoNotComeAboutEnd) {
  const TestCa::Files files = ca_.issue("server");
  ServerOptions options = test::plain_options();
  options.tls_certificate_file = files.certificate;
  options.tls_key_file = files.key;
  options.header_timeout = std::chrono::milliseconds(300);
  options.max_connections = 4;
  const auto server = start(make_router(), options);
  std::vector<std::unique_ptr<test::RawSocket>> silent;
  for (int i = 0; i < 12; ++i) {
    silent.push_back(std::make_unique<test::RawSocket>(server->port()));
    if (i % 2 == 0) silent.back()->send("\x16\x03\x01\x02");  // the beginning of a hello
  }
  const auto answer = client_.send(echo(server->port()));
  EXPECT_TRUE(answer.ok()) << "they make room: " << answer.error().message;
  for (const auto& one : silent) one->read_all();  // returns once the server has closed it
}

TEST_F(Tls, BadFilesAreNamedAtTheStart) {
  const TestCa::Files good = ca_.issue("good");
  const TestCa::Files other = ca_.issue("other");
  const auto why = [this](const std::string& certificate, const std::string& key) {
    ServerOptions options = test::plain_options();
    options.tls_certificate_file = certificate;
    options.tls_key_file = key;
    const auto server = Server::start(make_router(), options);
    return server.ok() ? std::string() : server.error().message;
  };
  EXPECT_THAT(why("/nowhere.pem", good.key), HasSubstr("/nowhere.pem"));
  EXPECT_THAT(why(good.certificate, "/nowhere.key"), HasSubstr("/nowhere.key"));
  EXPECT_THAT(why(good.certificate, other.key), HasSubstr("other.key"));
  EXPECT_THAT(why(good.certificate, ""), HasSubstr("one of them is missing"));
  Client client(ClientOptions{.ca_file = "/nowhere-ca.pem"});
  EXPECT_THAT(client.send(echo(1)).error().message, HasSubstr("/nowhere-ca.pem"));
}

TEST_F(Tls, ARenewedCertificateIsTakenWithoutARestart) {
  const TestCa::Files files = ca_.issue("server", {.valid_from_s = -7200, .valid_to_s = -60});
  const auto server = serve(files);
  EXPECT_FALSE(client_.send(echo(server->port())).ok());
  ca_.issue("server");  // in the same files
  ASSERT_TRUE(server->reload_tls().ok());
  EXPECT_TRUE(client_.send(echo(server->port())).ok());
}

TEST_F(Tls, TheUnixSocketStaysPlain) {
  const auto server = serve(ca_.issue("server"));
  const std::string path = (folder_.path() / "s.sock").string();
  ASSERT_TRUE(server->listen_unix(path).ok());
  ClientRequest request(Method::Post, unix_url(path) + "/echo");
  request.body = "x";
  const auto answer = client_.send(request);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "x");
}

TEST_F(Tls, CurlAndOpensslAgree) {
  const auto server = serve(ca_.issue("server"));
  if (has_program("curl")) {
    const std::string said =
        output_of(fmt::format("curl -sS --noproxy '*' --tlsv1.3 --cacert {} -H 'Content-Type: "
                              "application/json' -d '{{}}' https://localhost:{}/echo",
                              ca_.file(), server->port()));
    EXPECT_EQ(said, "{}");
    EXPECT_THAT(
        output_of(fmt::format("curl -sS --noproxy '*' https://localhost:{}/echo", server->port())),
        HasSubstr("certificate"));
  } else {
    GTEST_LOG_(WARNING) << "curl is not here: its opinion is missing";
  }
  if (has_program("openssl")) {
    const std::string said =
        output_of(fmt::format("openssl s_client -brief -verify_return_error -CAfile {} -connect "
                              "127.0.0.1:{} -verify_hostname localhost </dev/null",
                              ca_.file(), server->port()));
    EXPECT_THAT(said, HasSubstr("TLSv1.3"));
    EXPECT_THAT(said, HasSubstr("Verification: OK"));
    EXPECT_THAT(output_of(fmt::format("openssl s_client -brief -tls1_2 -connect 127.0.0.1:{} "
                                      "</dev/null",
                                      server->port())),
                ::testing::Not(HasSubstr("CONNECTION ESTABLISHED")))
        << "TLS 1.2 is not spoken";
  } else {
    GTEST_LOG_(WARNING) << "openssl is not here: its opinion is missing";
  }
}

}  // namespace
}  // namespace llorch::http
