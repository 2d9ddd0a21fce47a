// Where the work of a request runs, how often, and who waits for it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kChat = R"({"messages":[{"role":"user","content":"x"}]})";

struct Endpoint {
  std::string path;
  std::string body;
};

const std::vector<Endpoint>& working_endpoints() {
  static const std::vector<Endpoint> all = {
      {"/tokenize", R"({"text":"x"})"},         {"/execute", R"({"job_id":"j","prompt":"p"})"},
      {"/v1/completions", R"({"prompt":"p"})"}, {"/v1/chat/completions", std::string(kChat)},
      {"/v1/embeddings", R"({"input":"x"})"},
  };
  return all;
}

void answer_at_once(const FakeJob& job) {
  job.start();
  job.end();
}

// Requests hold every thread that reads them, more than the server has io threads: the server
// still answers, and all of them end once they may go on.
TEST(RequestWork, LeavesTheIoThreadsFree) {
  for (const Endpoint& endpoint : working_endpoints()) {
    TestWorker worker;
    worker.backend.script = answer_at_once;
    worker.backend.embedding = [](const EmbedRequest&) {
      return EmbeddingListener::Embedding{{1, 0}, 1};
    };
    Gate go;
    std::atomic<int> at_work = 0;
    Gate all_at_work;
    worker.backend.work = [&] {
      if (++at_work == 2) all_at_work.open();
      EXPECT_TRUE(go.wait());
    };
    std::vector<std::unique_ptr<RawSocket>> sockets;
    for (int i = 0; i < 6; ++i) {
      sockets.push_back(std::make_unique<RawSocket>(worker.server->port()));
      std::string body = endpoint.body;
      if (endpoint.path == "/execute") body = fmt::format(R"({{"job_id":"j{}","prompt":"p"}})", i);
      ASSERT_TRUE(sockets.back()->send(
          http::test::post(endpoint.path, body, fmt::format("Connection: close\r\n{}", kJson))));
    }
    ASSERT_TRUE(all_at_work.wait()) << endpoint.path;
    EXPECT_EQ(status_of(worker.get("/health")), 200) << endpoint.path;
    EXPECT_EQ(status_of(worker.get("/openapi.json")), 200) << endpoint.path;
    go.open();
    for (const auto& socket : sockets) EXPECT_EQ(status_of(socket->read_all()), 200);
  }
}

TEST(RequestWork, IsDoneOnceForAllChoices) {
  TestWorker worker;
  worker.backend.script = answer_at_once;
  const std::string response = worker.post("/v1/chat/completions",
                                           R"({"messages":[{"role":"user","content":"x"}],"n":64,
                      "response_format":{"type":"json_object"}})");
  EXPECT_EQ(status_of(response), 200) << response;
  EXPECT_EQ(worker.backend.num_prepared(), 1U);
  EXPECT_EQ(worker.backend.num_jobs(), 64U);
  worker.post("/v1/completions", R"({"prompt":["a","b"],"n":3})");
  EXPECT_EQ(worker.backend.num_prepared(), 3U);
  EXPECT_EQ(worker.backend.num_jobs(), 70U);
}

TEST(RequestWork, LongRequestsDoNotHoldUpShortOnes) {
  TestWorker worker;
  Gate go;
  worker.backend.work = [&] { EXPECT_TRUE(go.wait()); };
  const std::string body = fmt::format(R"({{"text":"{}"}})", std::string(100'000, 'x'));
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 4; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(worker.server->port()));
    ASSERT_TRUE(sockets.back()->send(
        http::test::post("/tokenize", body, fmt::format("Connection: close\r\n{}", kJson))));
  }
  EXPECT_EQ(status_of(worker.post("/detokenize", R"({"tokens":[1]})")), 200);
  go.open();
  for (const auto& socket : sockets) EXPECT_EQ(status_of(socket->read_all()), 200);
}

// Both threads for short requests are busy; a third waits, its client leaves, and nobody ever reads
// what it sent.
TEST(RequestWork, OfAClientThatLeftNeverBegins) {
  TestWorker worker;
  worker.backend.script = answer_at_once;
  Gate go;
  std::atomic<int> at_work = 0;
  Gate both;
  worker.backend.work = [&] {
    if (++at_work == 2) both.open();
    EXPECT_TRUE(go.wait());
  };
  std::vector<std::unique_ptr<RawSocket>> busy;
  for (int i = 0; i < 2; ++i) {
    busy.push_back(std::make_unique<RawSocket>(worker.server->port()));
    ASSERT_TRUE(busy.back()->send(http::test::post("/v1/chat/completions", kChat, kJson)));
  }
  ASSERT_TRUE(both.wait());
  {
    RawSocket leaving(worker.server->port());
    ASSERT_TRUE(leaving.send(http::test::post("/v1/chat/completions", kChat, kJson)));
    while (worker.server->num_connections() < 3) std::this_thread::yield();
    leaving.reset();
  }
  while (worker.server->num_connections() > 2) std::this_thread::yield();
  go.open();
  for (const auto& socket : busy) EXPECT_EQ(status_of(socket->read_response()), 200);
  // Whoever comes now stands behind the one that left.
  EXPECT_EQ(status_of(worker.post("/v1/chat/completions", kChat)), 200);
  EXPECT_EQ(worker.backend.num_prepared(), 3U);
}

TEST(RequestWork, EndsWithItsDeadline) {
  RouteSettings settings;
  settings.inference_timeout = std::chrono::milliseconds(50);
  TestWorker worker(settings);
  Gate go;
  worker.backend.work = [&] { EXPECT_TRUE(go.wait()); };
  for (const auto& [path, body] : working_endpoints()) {
    EXPECT_EQ(status_of(worker.post(path, body)), 504) << path;
  }
  go.open();
}

// A piece of work that takes too long is given up although the request itself has time.
TEST(RequestWork, HasATimeOfItsOwn) {
  RouteSettings settings;
  settings.work_time = std::chrono::milliseconds(0);
  TestWorker worker(settings);
  EXPECT_EQ(status_of(worker.post("/v1/chat/completions", kChat)), 504);
  EXPECT_EQ(status_of(worker.post("/execute", R"({"job_id":"j","prompt":"p"})")), 504);
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
}

TEST(RequestWork, ThatThrowsFailsItsRequestAlone) {
  TestWorker worker;
  worker.backend.script = answer_at_once;
  worker.backend.embedding = [](const EmbedRequest&) {
    return EmbeddingListener::Embedding{{1, 0}, 1};
  };
  for (const auto& [path, body] : working_endpoints()) {
    worker.backend.work = [] { throw std::bad_alloc(); };
    EXPECT_EQ(status_of(worker.post(path, body)), 503) << path;
    worker.backend.work = [] { throw std::runtime_error("surprise"); };
    const std::string response = worker.post(path, body);
    EXPECT_EQ(status_of(response), 500) << path;
    EXPECT_THAT(response, HasSubstr("surprise"));
    worker.backend.work = [] {};
    EXPECT_EQ(status_of(worker.post(path, body)), 200) << path;
  }
  EXPECT_EQ(status_of(worker.get("/health")), 200);
}

TEST(RequestWork, BlamesTheRightField) {
  using Blame = PrepareError::Blame;
  TestWorker worker;
  struct Case {
    Blame blame;
    std::string path;
    std::string body;
    json::Value param;
    json::Value code;
  };
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}])";
  const std::vector<Case> cases = {
      {Blame::Context, "/v1/chat/completions", messages + "}", "messages",
       "context_length_exceeded"},
      {Blame::Context, "/v1/completions", R"({"prompt":"p"})", "prompt", "context_length_exceeded"},
      {Blame::MaxTokens, "/v1/completions", R"({"prompt":"p","max_tokens":9})", "max_tokens",
       nullptr},
      {Blame::MaxTokens, "/v1/chat/completions", messages + R"(,"max_tokens":9})", "max_tokens",
       nullptr},
      {Blame::MaxTokens, "/v1/chat/completions", messages + R"(,"max_completion_tokens":9})",
       "max_completion_tokens", nullptr},
      {Blame::Format, "/v1/chat/completions", messages + "}", "response_format", nullptr},
  };
  for (const Case& expected : cases) {
    worker.backend.preparation = [&](const TextRequest&) -> Preparation {
      return PrepareError{{ErrorCode::InvalidArgument, "100 + 20 > 64"}, expected.blame};
    };
    const std::string response = worker.post(expected.path, expected.body);
    EXPECT_EQ(status_of(response), 400);
    const json::Value error = json_of(response).at("error");
    EXPECT_EQ(error.at("param"), expected.param) << response;
    EXPECT_EQ(error.at("code"), expected.code) << response;
    EXPECT_EQ(error.at("type"), "invalid_request_error");
  }
  for (const auto& [blame, field] :
       {std::pair{Blame::Context, "prompt"}, std::pair{Blame::MaxTokens, "max_tokens"}}) {
    worker.backend.preparation = [blame = blame](const TextRequest&) -> Preparation {
      return PrepareError{{ErrorCode::InvalidArgument, "100 + 20 > 64"}, blame};
    };
    const json::Value error =
        json_of(worker.post("/execute", R"({"job_id":"j","prompt":"p"})")).at("error");
    EXPECT_EQ(error.at("code"), "INVALID_REQUEST");
    EXPECT_EQ(error.at("errors").at(0).at("field"), field);
  }
}

}  // namespace
}  // namespace llorch::worker_http
