// What clients ask of llorch-cpud and get, one at a time.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/utf8.h"
#include "http/test_server.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(WorkerRequests, TheSameRequestGivesTheSameText) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto ask = [&](std::string_view job, std::string_view more) {
    return worker.execute(
        fmt::format(R"({{"job_id":"{}","prompt":"Once upon","max_tokens":40{}}})", job, more));
  };
  const ExecuteOutcome greedy = ask("a", R"(,"temperature":0)");
  ASSERT_TRUE(greedy.end.has_value()) << greedy.body;
  EXPECT_EQ(greedy.end->tokens_out, 40);
  EXPECT_EQ(greedy.end->stop_reason, contract::StopReason::MaxTokens);
  EXPECT_EQ(greedy.text(), ask("b", R"(,"temperature":0)").text());
  const ExecuteOutcome seeded = ask("c", R"(,"seed":12345678901234567890)");
  EXPECT_EQ(seeded.started->seed, 12345678901234567890U);
  EXPECT_EQ(seeded.text(), ask("d", R"(,"seed":12345678901234567890)").text());
  EXPECT_NE(seeded.text(), ask("e", R"(,"seed":2)").text());
  const ExecuteOutcome drawn = ask("f", "");
  const ExecuteOutcome other = ask("g", "");
  EXPECT_NE(drawn.started->seed, other.started->seed);
  EXPECT_EQ(drawn.text(), ask("h", fmt::format(R"(,"seed":{})", drawn.started->seed)).text());
}

// Pitfall 14 of the original project: rows of the vocabulary that stand for no token.
TEST(WorkerRequests, PaddingOfTheVocabularyIsNeverChosen) {
  TestModelSize loud;
  loud.padding = 1000;  // one of the eight always has the largest logit by far
  WorkerFixture worker;
  WorkerFixture padded(loud);
  ASSERT_TRUE(worker.wait_until_healthy());
  ASSERT_TRUE(padded.wait_until_healthy());
  for (const char* choice : {R"("temperature":0)", R"("temperature":1,"seed":5)",
                             R"("temperature":2,"top_k":40,"seed":6)",
                             R"("temperature":1,"top_p":0.9,"repetition_penalty":1.3,"seed":7)"}) {
    const std::string body =
        fmt::format(R"({{"job_id":"a","prompt":"Once upon a time","max_tokens":24,{}}})", choice);
    const ExecuteOutcome expected = worker.execute(body);
    ASSERT_TRUE(expected.end.has_value()) << expected.body;
    EXPECT_EQ(padded.execute(body).text(), expected.text()) << choice;
  }
  // Nor do they take probability from the others, and nobody may ask for them.
  const std::string scored = R"({"prompt":"Once","max_tokens":3,"temperature":0,"logprobs":3})";
  EXPECT_EQ(parse(padded.post("/v1/completions", scored).body).at("choices"),
            parse(worker.post("/v1/completions", scored).body).at("choices"));
  const http::Response refused =
      padded.post("/v1/completions", R"({"prompt":[1,744],"max_tokens":3})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("id 744: expected 0 to 743"));
}

TEST(WorkerRequests, EveryRepetitionPenaltyAboveZeroIsTaken) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto ask = [&](std::string_view job, std::string_view penalty) {
    return worker.execute(fmt::format(
        R"({{"job_id":"{}","prompt":"Once upon","max_tokens":9,"seed":4,"repetition_penalty":{}}})",
        job, penalty));
  };
  const ExecuteOutcome least = ask("a", "1e-6");
  ASSERT_TRUE(least.end.has_value()) << least.body;
  EXPECT_EQ(least.end->tokens_out, 9);
  EXPECT_EQ(ask("b", "1e-40").text(), least.text());
}

TEST(WorkerRequests, ReportsItsNumbers) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const std::string body = fmt::format(
      R"({{"job_id":"a","prompt":"{}","max_tokens":5,"temperature":0}})", long_prompt(60));
  const ExecuteOutcome first = worker.execute(body);
  ASSERT_TRUE(first.end.has_value()) << first.body;
  const json::Value tokens = parse(
      worker
          .post("/tokenize", fmt::format(R"({{"text":"{}","add_special":true}})", long_prompt(60)))
          .body);
  EXPECT_EQ(first.started->prompt_tokens, tokens.at("count").to_number<std::int64_t>());
  EXPECT_EQ(first.started->cached_tokens, 0);
  EXPECT_EQ(first.started->model, "test-model");
  EXPECT_EQ(first.end->prompt_tokens, first.started->prompt_tokens);
  EXPECT_GT(first.end->ttft_ms, 0);
  EXPECT_GE(first.end->ttft_ms, first.end->prefill_ms);
  const ExecuteOutcome second = worker.execute(body);
  EXPECT_GE(second.started->cached_tokens, 16) << "the prefix cache";
  EXPECT_EQ(second.text(), first.text());
  EXPECT_EQ(worker.metric("llorch_output_tokens_total"), 2 + 5 + 5);  // the warm-up has two
}

TEST(WorkerRequests, PromptsThatDoNotFitAre400WithTheCounts) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  ExecuteOutcome outcome =
      worker.execute(fmt::format(R"({{"job_id":"j","prompt":"{}"}})", long_prompt(1000)));
  EXPECT_EQ(outcome.status, 400);
  EXPECT_THAT(outcome.body, HasSubstr("512"));
  EXPECT_THAT(outcome.body, HasSubstr("\"field\":\"prompt\""));
  outcome = worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":511})");
  EXPECT_EQ(outcome.status, 400);
  EXPECT_THAT(outcome.body, HasSubstr("513")) << "two prompt tokens and 511";
  outcome = worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":510,"temperature":0})");
  ASSERT_TRUE(outcome.end.has_value()) << "to the last slot: " << outcome.body;
  EXPECT_EQ(outcome.end->tokens_out, 510);
  outcome = worker.execute(R"({"job_id":"j","prompt":""})");
  EXPECT_EQ(outcome.status, 400);
  EXPECT_THAT(outcome.body, HasSubstr("prompt must have 1..131072"));
  EXPECT_EQ(
      worker.post("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", long_prompt(1000))).status,
      400);
  EXPECT_EQ(
      worker.post("/v1/embeddings", fmt::format(R"({{"input":"{}"}})", long_prompt(1000))).status,
      400);
  EXPECT_TRUE(worker.wait_until_idle());
}

TEST(WorkerRequests, EveryCharacterOfUnicode) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto encode = [](std::string& out, std::uint32_t c) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63));
    if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)),
        put(0x80 | (c & 63));
  };
  std::string text;
  for (std::uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    encode(text, c);
    if ((c & 0x3FFF) != 0x3FFF) continue;
    const http::Response tokens =
        worker.post("/tokenize", json::serialize(json::Object{{"text", text}}));
    ASSERT_EQ(tokens.status, 200) << c;
    const http::Response back = worker.post(
        "/detokenize", json::serialize(json::Object{{"tokens", parse(tokens.body).at("tokens")}}));
    // Not ASSERT_EQ: nobody wants to see the difference.
    ASSERT_TRUE(parse(back.body).at("text") == json::Value(text)) << "up to " << c;
    text.clear();
  }
  const ExecuteOutcome outcome = worker.execute(
      R"({"job_id":"j","prompt":"👩‍👩‍👧‍👦 🏴󠁧󠁢󠁳󠁣󠁴󠁿 é ﷽ 漢字 \u0000 \ud83d\ude00","max_tokens":200,"temperature":2})");
  ASSERT_TRUE(outcome.end.has_value()) << outcome.body;
  EXPECT_TRUE(base::is_valid_utf8(outcome.text()));
}

TEST(WorkerRequests, StopStringsEndTheText) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const ExecuteOutcome whole =
      worker.execute(R"({"job_id":"a","prompt":"Once","max_tokens":60,"seed":3})");
  const std::string text = whole.text();
  // From the middle of one token to the middle of another.
  std::string stop;
  std::size_t at = 0;
  for (std::size_t i = 3; i < text.size() && stop.empty(); ++i) {
    const std::string candidate = text.substr(i, 4);
    if (base::is_valid_utf8(candidate) && text.find(candidate) == i) stop = candidate, at = i;
  }
  ASSERT_FALSE(stop.empty());
  const json::Object body{{"job_id", "b"},
                          {"prompt", "Once"},
                          {"max_tokens", 60},
                          {"seed", 3},
                          {"stop", json::Array{"never there", json::Value(stop)}}};
  const ExecuteOutcome cut = worker.execute(json::serialize(body));
  ASSERT_TRUE(cut.end.has_value()) << cut.body;
  EXPECT_EQ(cut.end->stop_reason, contract::StopReason::StopSequence);
  EXPECT_EQ(cut.end->stop_sequence_matched, stop);
  EXPECT_EQ(cut.text(), text.substr(0, at));
  EXPECT_LT(cut.end->tokens_out, 60);
}

TEST(WorkerRequests, CancelEndsAJobSoonAndReturnsItsBlocks) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  EXPECT_EQ(worker.post("/cancel", R"({"job_id":"j"})").status, 404);
  ExecuteOutcome outcome;
  std::thread client([&] {
    outcome = worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":2000,"temperature":0})");
  });
  ASSERT_TRUE(worker.wait_until_busy(1));
  EXPECT_EQ(worker.execute(R"({"job_id":"j","prompt":"x"})").status, 409);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(worker.post("/cancel", R"({"job_id":"j"})").status, 202);
  client.join();
  ASSERT_TRUE(outcome.error.has_value()) << outcome.body;
  EXPECT_EQ(outcome.error->code, ErrorCode::Cancelled);
  EXPECT_LT(outcome.tokens.size(), 1900U);
  const contract::HealthReport report = worker.health();
  EXPECT_EQ(report.kv_blocks_free, report.kv_blocks_total) << "free when the stream ends";
  EXPECT_EQ(worker.post("/cancel", R"({"job_id":"j"})").status, 202) << "a finished job is known";
  const ExecuteOutcome again =
      worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":2,"temperature":0})");
  EXPECT_TRUE(again.end.has_value()) << "and its id may be used again";
}

TEST(WorkerRequests, RapidCancel) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  int cancelled = 0;
  int ended = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string job = fmt::format("j{}", i);
    ExecuteOutcome outcome;
    std::thread client([&] {
      outcome = worker.execute(
          fmt::format(R"({{"job_id":"{}","prompt":"x","max_tokens":500,"temperature":0}})", job));
    });
    int status = 404;
    while (status == 404)
      status = worker.post("/cancel", fmt::format(R"({{"job_id":"{}"}})", job)).status;
    client.join();
    EXPECT_EQ(status, 202);
    if (outcome.status == 499) {  // before its first event
      EXPECT_THAT(outcome.body, HasSubstr(R"("code":"CANCELLED")"));
    } else {
      ASSERT_TRUE(outcome.end || outcome.error) << outcome.body;
      if (outcome.error) {
        EXPECT_EQ(outcome.error->code, ErrorCode::Cancelled);
      }
    }
    ++(outcome.end ? ended : cancelled);
  }
  EXPECT_GT(cancelled, 10) << ended << " ended before they could be cancelled";
  EXPECT_TRUE(worker.wait_until_idle());
}

// A client that is killed with -9 while it waits: its process, sockets and all, is gone at once.
pid_t start_client(std::uint16_t port, const std::string& request) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) ::_exit(1);
  if (::send(fd, request.data(), request.size(), 0) < 0) ::_exit(1);
  while (true) ::pause();
}

void kill_client(pid_t pid) {
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
}

TEST(WorkerRequests, KillingTheClientDuringPrefillStopsTheCompute) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  const std::string request = http::test::post(
      "/execute", fmt::format(R"({{"job_id":"j","prompt":"{}","max_tokens":4}})", long_prompt(900)),
      "", worker.authority());
  const double before = worker.metric("llorch_output_tokens_total");
  const pid_t client = start_client(worker.port(), request);
  ASSERT_TRUE(worker.wait_until_busy(1));
  const auto since = std::chrono::steady_clock::now();
  kill_client(client);
  ASSERT_TRUE(worker.wait_until_idle());
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - since;
  std::printf("blocks back %.1f ms after kill -9 in prefill\n", elapsed.count());
  EXPECT_EQ(worker.metric("llorch_output_tokens_total"), before)
      << "the prefill went on to its end";
}

TEST(WorkerRequests, KillingTheClientDuringDecodeStopsTheCompute) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  const double before = worker.metric("llorch_output_tokens_total");
  const pid_t client = start_client(
      worker.port(),
      http::test::post("/execute",
                       R"({"job_id":"j","prompt":"x","max_tokens":2000,"temperature":0})", "",
                       worker.authority()));
  while (worker.metric("llorch_output_tokens_total") < before + 5)
    std::this_thread::sleep_for(milliseconds(2));
  const auto since = std::chrono::steady_clock::now();
  kill_client(client);
  ASSERT_TRUE(worker.wait_until_idle());
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - since;
  std::printf("blocks back %.1f ms after kill -9 in decode\n", elapsed.count());
  EXPECT_LT(worker.metric("llorch_output_tokens_total"), before + 1900);
  EXPECT_EQ(worker.metric("llorch_requests_total{outcome=\"cancelled\"}"), 1);
}

TEST(WorkerRequests, DeadlinesEndStreams) {
  WorkerFixture worker(kSlow, {"--inference-timeout-sec", "1"});
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto in_ms = [](int ms) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    http::Headers headers;
    headers.set("X-Deadline",
                fmt::format("{}", std::chrono::duration_cast<milliseconds>(now).count() + ms));
    return headers;
  };
  const std::string_view body = R"({"job_id":"j","prompt":"x","max_tokens":2000,"temperature":0})";
  const ExecuteOutcome soon = worker.execute(body, in_ms(200));
  ASSERT_TRUE(soon.error.has_value()) << soon.body;
  EXPECT_EQ(soon.error->code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(worker.execute(body, in_ms(-1)).status, 504);
  const ExecuteOutcome own = worker.execute(body);
  ASSERT_TRUE(own.error.has_value()) << own.body;
  EXPECT_EQ(own.error->code, ErrorCode::DeadlineExceeded);
  EXPECT_TRUE(worker.wait_until_idle());
}

TEST(WorkerRequests, MalformedHttpIsAnsweredAndHarmless) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  for (const std::string& bytes :
       {std::string("GARBAGE\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string(3000, '\xFF'),
        std::string("POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"),
        std::string(
            "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        std::string("POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
        "GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n",
        std::string("\0\0\0\0\r\n\r\n", 8)}) {
    http::test::RawSocket socket(worker.port());
    ASSERT_TRUE(socket.send(bytes));
    socket.shutdown_send();
    const std::string response = socket.read_all();
    const int status = http::test::status_of(response);
    EXPECT_TRUE(status == 0 || (status >= 400 && status < 500)) << response;
  }
  EXPECT_EQ(worker.get("/health").status, 200);
}

}  // namespace
}  // namespace llorch::test
