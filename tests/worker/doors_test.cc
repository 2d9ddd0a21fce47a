// A real worker against strangers: many connections, endless frames, web pages.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "http/test_server.h"
#include "support/idle_sockets.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

constexpr std::size_t kIdle = 4300;

TEST(WorkerDoors, ThousandsOfIdleConnectionsDoNotHideItsHealth) {
  if (!allow_descriptors(kIdle + 200))
    GTEST_SKIP() << "SKIPPED: RLIMIT_NOFILE is too low for " << kIdle << " sockets";
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const std::int64_t before = worker.process().resident_bytes();
  const IdleSockets idle(worker.port(), kIdle);
  ASSERT_EQ(idle.num_connected(), kIdle);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(worker.get("/health").status, 200);
  const std::int64_t after = worker.process().resident_bytes();
  std::printf("%zu idle connections: %.1f MB more\n", kIdle,
              static_cast<double>(after - before) / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(after - before, 64'000'000);
#endif
  const ExecuteOutcome outcome = worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":2})");
  EXPECT_TRUE(outcome.end.has_value()) << outcome.body;
}

TEST(WorkerDoors, AFewDescriptorsAreEnoughForItsHealth) {
  TempDir folder;
  ChildProcess worker("/bin/sh",
                      {"-c", "ulimit -n 64; exec " + cpud_program() +
                                 " --worker-id w --model builtin --port 0 --log-format json"},
                      {"LLORCH_HOME=" + folder.path().string()});
  ASSERT_TRUE(worker.wait_for_err("\"message\":\"ready\""));
  const std::string log = worker.err();
  const std::size_t at = log.find("\"port\":");
  ASSERT_NE(at, std::string::npos) << log;
  const auto port = static_cast<std::uint16_t>(std::stoi(log.substr(at + 7)));
  const IdleSockets idle(port, 200);
  http::Client client;
  for (int i = 0; i < 20; ++i) {
    const Result<http::Response> health =
        client.send({http::Method::Get, fmt::format("http://127.0.0.1:{}/health", port)});
    ASSERT_TRUE(health.ok()) << health.error().message;
    EXPECT_EQ(health->status, 200);
  }
  EXPECT_TRUE(worker.is_running());
}

TEST(WorkerDoors, EndlessFramesTakeNoMemory) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const std::int64_t before = worker.process().resident_bytes();
  const std::string piece(64 * 1024, 'x');
  for (const char* path : {"/health", "/execute"}) {
    http::test::RawSocket socket(worker.port());
    socket.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n1;",
                    path, worker.authority()));
    for (int i = 0; i < 800 && socket.send(piece); ++i) {
    }
    const std::int64_t growth = worker.process().resident_bytes() - before;
    std::printf("%s: %.2f MB more\n", path, static_cast<double>(growth) / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(growth, 4'000'000) << path;
#endif
  }
  EXPECT_EQ(worker.get("/health").status, 200);
}

TEST(WorkerDoors, PagesCannotStopIt) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto status_for = [&](std::string_view fields) {
    http::test::RawSocket socket(worker.port());
    socket.send(fmt::format("POST /shutdown HTTP/1.1\r\nConnection: close\r\n{}\r\n", fields));
    return http::test::status_of(socket.read_all());
  };
  const std::string own = fmt::format("Host: {}\r\n", worker.authority());
  const std::string json = "Content-Type: application/json\r\n";
  EXPECT_EQ(status_for(own), 415);
  EXPECT_EQ(status_for(own + "Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status_for("Host: rebound.example\r\n" + json), 403);
  EXPECT_EQ(status_for(own + json + "Origin: https://evil.example\r\n"), 403);
  EXPECT_EQ(worker.get("/health").status, 200);
  EXPECT_EQ(status_for(own + json), 202);
  EXPECT_EQ(worker.process().wait(), 0);
}

TEST(WorkerDoors, AllowedPagesUseItAndKeysAreNeverLogged) {
  TempDir folder;
  const std::string token_file = (folder.path() / "token").string();
  std::ofstream(token_file) << "0123456789abcdef\n";
  WorkerFixture worker(kQuick, {"--api-token-file", token_file, "--allow-origin",
                                "https://app.example", "--log-format", "json"});
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto answer_to = [&](std::string_view line, std::string_view fields) {
    http::test::RawSocket socket(worker.port());
    socket.send(
        fmt::format("{} HTTP/1.1\r\nHost: box.lan\r\nConnection: close\r\n{}\r\n", line, fields));
    return socket.read_all();
  };
  const std::string page = "Origin: https://app.example\r\n";
  const std::string preflight =
      answer_to("OPTIONS /v1/chat/completions", page + "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(http::test::status_of(preflight), 204);
  EXPECT_EQ(http::test::header_of(preflight, "access-control-allow-origin"), "https://app.example");
  const std::string models =
      answer_to("GET /v1/models", page + "Authorization: Bearer 0123456789abcdef\r\n");
  EXPECT_EQ(http::test::status_of(models), 200);
  EXPECT_EQ(http::test::header_of(models, "access-control-allow-origin"), "https://app.example");
  const std::string refused =
      answer_to("GET /v1/models", "Authorization: Bearer wrong-key-of-somebody\r\n");
  EXPECT_EQ(http::test::status_of(refused), 401);
  EXPECT_TRUE(worker.process().wait_for_err("\"key\":\"token:"));
  EXPECT_THAT(worker.process().err(), Not(HasSubstr("wrong-key")));
  EXPECT_THAT(worker.process().err(), Not(HasSubstr("0123456789abcdef")));
}

}  // namespace
}  // namespace llorch::test
