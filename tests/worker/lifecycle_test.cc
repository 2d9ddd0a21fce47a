// llorch-cpud from start to end: flags, loading, callback, failures, signals, logs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/mutex.h"
#include "http/server.h"
#include "http/test_server.h"
#include "support/run_program.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

TEST(WorkerStart, ListensWhileLoadingThenServes) {
  WorkerFixture worker(kSlow);
  const http::Response first = worker.get("/health");
  EXPECT_EQ(first.status, 503);
  EXPECT_THAT(first.body, HasSubstr("\"status\":\"loading\""));
  EXPECT_THAT(first.body, HasSubstr("\"load_progress\":"));
  const ExecuteOutcome early = worker.execute(R"({"job_id":"j","prompt":"x"})");
  EXPECT_EQ(early.status, 503) << early.body;
  EXPECT_THAT(early.body, HasSubstr("UNAVAILABLE"));
  ASSERT_TRUE(worker.wait_until_healthy());
  const contract::HealthReport report = worker.health();
  EXPECT_EQ(report.build.rfind(report.version + "+", 0), 0U) << report.build;
  EXPECT_EQ(report.device_class.rfind("cpu-", 0), 0U) << report.device_class;
  EXPECT_TRUE(report.model_loaded);
  EXPECT_EQ(report.model, "test-model");
  EXPECT_EQ(report.architecture, "gpt2");
  EXPECT_EQ(report.quant_kind, "F32");
  EXPECT_EQ(report.tokenizer_kind, "bpe");
  EXPECT_EQ(report.vocab_size, 744) << "what the tokenizer has";
  EXPECT_EQ(report.context_length, 2048);
  EXPECT_EQ(report.memory_type, "cpu");
  EXPECT_EQ(report.backend, "cpu");
  EXPECT_EQ(report.vram_bytes, 0);
  EXPECT_GT(report.memory_bytes, 40'000'000);
  EXPECT_TRUE(report.last_token_age_ms.has_value()) << "the warm-up's token counts";
  EXPECT_EQ(report.kv_blocks_free, report.kv_blocks_total) << "the warm-up must leave nothing";
}

TEST(WorkerStart, TestModeSkipsTheCallback) {
  WorkerFixture worker(kQuick, {"--callback-url", "http://localhost:9999/ready"});
  ASSERT_TRUE(worker.wait_until_healthy());
  EXPECT_TRUE(worker.process().wait_for_err("test mode"));
  EXPECT_TRUE(worker.process().is_running());
}

TEST(WorkerStart, TellsTheCallbackOnceReady) {
  base::Mutex mutex;
  base::CondVar came;
  std::string body;
  std::string content_type;
  http::Router router;
  router.add(http::Method::Post, "/v2/internal/workers/ready",
             [&](const http::Request& request) -> Result<http::Response> {
               const base::MutexLock lock(mutex);
               body = request.body;
               content_type = request.headers.find("Content-Type").value_or("");
               came.notify_all();
               return http::Response(200, "application/json", "{}");
             });
  const auto pool = http::test::start(std::move(router));
  WorkerFixture worker(
      kQuick, {"--callback-url",
               fmt::format("http://127.0.0.1:{}/v2/internal/workers/ready", pool->port())});
  {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    const base::MutexLock lock(mutex);
    while (body.empty()) ASSERT_TRUE(came.wait_until(mutex, deadline));
  }
  EXPECT_EQ(worker.get("/health").status, 200) << "the callback comes when the worker is ready";
  const Result<contract::ReadyCallback> callback = contract::parse_ready_callback(body);
  ASSERT_TRUE(callback.ok()) << body;
  EXPECT_EQ(callback->worker_id, "w-test");
  EXPECT_EQ(callback->uri, fmt::format("http://127.0.0.1:{}", worker.port()));
  EXPECT_THAT(callback->model_ref, EndsWith("test-model"));
  EXPECT_EQ(callback->memory_bytes, worker.health().memory_bytes);
  EXPECT_EQ(callback->memory_architecture, "cpu");
  EXPECT_EQ(callback->worker_type, "llorch-cpud");
  EXPECT_THAT(callback->capabilities, ::testing::ElementsAre("text-gen"));
  EXPECT_EQ(content_type, "application/json");
}

TEST(WorkerStart, KeepsTryingWhenTheCallbackServerIsDown) {
  std::uint16_t dead_port = 0;
  {
    const auto gone = http::test::start(http::Router());
    dead_port = gone->port();
  }
  WorkerFixture worker(kQuick, {"--callback-url", fmt::format("http://127.0.0.1:{}/r", dead_port)});
  ASSERT_TRUE(worker.process().wait_for_err("trying again")) << worker.process().err();
  EXPECT_EQ(worker.get("/health").status, 200);
  worker.process().signal(SIGTERM);
  EXPECT_EQ(worker.process().wait(seconds(5)), 0) << "a signal must not wait for the callback";
}

struct BadStart {
  std::vector<std::string> arguments;
  int exit_code;
  std::string message;
};

void expect_failures(const std::vector<BadStart>& cases) {
  for (const BadStart& bad : cases) {
    const ProgramOutcome outcome = run_program(cpud_program(), bad.arguments);
    EXPECT_EQ(outcome.exit_code, bad.exit_code) << bad.message << ": " << outcome.err;
    EXPECT_THAT(last_line(outcome.err), StartsWith("llorch-cpud: "));
    EXPECT_THAT(last_line(outcome.err), HasSubstr(bad.message));
  }
}

TEST(WorkerStart, BadFlagsAreUsageErrors) {
  expect_failures({
      {{}, 2, "--"},
      {{"--worker-id", "w", "--model", "m"}, 2, "--port"},
      {{"--worker-id", "w", "--model", "m", "--port", "99999"}, 2, "--port"},
      {{"--worker-id", "a b", "--model", "m", "--port", "0"}, 2, "--worker-id"},
      {{"--worker-id", "w", "--model", "m", "--port", "0", "--max-batch", "0"}, 2, "--max-batch"},
      {{"--worker-id", "w", "--model", "m", "--port", "0", "--log-format", "xml"},
       2,
       "--log-format"},
      {{"--worker-id", "w", "--model", "m", "--port", "0", "--surprise"}, 2, "surprise"},
  });
  const ProgramOutcome version = run_program(cpud_program(), {"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("."));
  EXPECT_EQ(run_program(cpud_program(), {"--help"}).exit_code, 0);
}

TEST(WorkerStart, FailuresAreOneClearLine) {
  const TempDir folder;
  const std::filesystem::path good = folder / "good";
  write_test_model(good);
  const auto with = [&](const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--worker-id", "w", "--model", model, "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const auto taken = http::test::start(http::Router());
  const std::string short_token = folder / "token";
  std::ofstream(short_token) << "short\n";
  const std::string bad_template = folder / "bad.jinja";
  std::ofstream(bad_template) << "{% if";
  expect_failures({
      {with("/nowhere/model.gguf"), 1, "/nowhere/model.gguf"},
      {with(folder.path().string()), 1, folder.path().string()},
      {with(good.string(), {"--ctx", "513"}), 1, "512"},
      {with(good.string(), {"--kv-memory", "1"}), 1, "--kv-memory"},
      {with(good.string(), {"--callback-url", "ftp://x"}), 1, "--callback-url"},
      {with(good.string(), {"--host", "0.0.0.0"}), 1, "token"},
      {with(good.string(), {"--chat-template", "chatlm"}), 1, "no built-in template (chatml, "},
      {with(good.string(), {"--chat-template", bad_template}), 1, bad_template},
      {with(good.string(), {"--api-token-file", "/nowhere/token"}), 1, "--api-token-file"},
      {with(good.string(), {"--api-token-file", short_token}), 1, "16"},
      {with(good.string(), {"--host", "192.0.2.1", "--api-token-file", short_token}), 1, "16"},
      {{"--worker-id", "w", "--model", good.string(), "--port", fmt::format("{}", taken->port())},
       1,
       fmt::format("{}", taken->port())},
  });
}

// Damaged copies of a good model: each must be refused, none may crash the program.
TEST(WorkerStart, CorruptedAndTruncatedFilesAreRefused) {
  const TempDir folder;
  const std::filesystem::path model = folder / "model";
  write_test_model(model);
  const std::filesystem::path weights = model / "model.safetensors";
  const Result<std::string> whole = base::read_text_file(weights, std::size_t{64} << 20);
  ASSERT_TRUE(whole.ok());
  const auto expect_refusal = [&](const std::filesystem::path& file, std::string_view content,
                                  const char* what) {
    const Result<std::string> original = base::read_text_file(file, std::size_t{64} << 20);
    std::ofstream(file, std::ios::binary) << content;
    const ProgramOutcome outcome =
        run_program(cpud_program(), {"--worker-id", "w", "--model", model.string(), "--port", "0"});
    EXPECT_EQ(outcome.exit_code, 1) << what << ": " << outcome.err;
    EXPECT_THAT(last_line(outcome.err), StartsWith("llorch-cpud: ")) << what;
    std::ofstream(file, std::ios::binary) << *original;
  };
  expect_refusal(weights, "", "empty weights");
  expect_refusal(weights, whole->substr(0, 4), "cut in the length");
  expect_refusal(weights, whole->substr(0, 1000), "cut in the header");
  expect_refusal(weights, whole->substr(0, whole->size() - 1), "cut in the last tensor");
  std::string broken = *whole;
  broken[20] = '\x01';
  expect_refusal(weights, broken, "a broken header");
  expect_refusal(weights, std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F") + whole->substr(8),
                 "a huge header");
  expect_refusal(model / "config.json", "{", "a broken config");
  expect_refusal(model / "config.json", R"({"model_type":"unheard-of"})", "an unknown family");
  expect_refusal(model / "tokenizer.json", whole->substr(0, 100), "a broken tokenizer");
}

TEST(WorkerStart, AStandardErrorThatTakesNothingIsNoCrash) {
  const ProgramOutcome outcome = run_program(
      "/bin/sh",
      {"-c", R"(exec "$0" --worker-id w --model /nowhere --port 0 2>/dev/full)", cpud_program()});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
}

TEST(WorkerStart, WordsOfAFileNeitherBreakTheLineNorReachTheTerminalAsOrders) {
  const TempDir folder;
  const std::filesystem::path model = folder / "model";
  write_test_model(model);
  const std::string family = R"(un\u001b[31mheard\nof)" + std::string(100'000, 'A');
  std::ofstream(model / "config.json") << R"({"model_type":")" << family << R"("})";
  const ProgramOutcome outcome = run_program(
      cpud_program(),
      {"--worker-id", "w", "--model", model.string(), "--port", "0", "--log-format", "json"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const std::string line = last_line(outcome.err);
  EXPECT_THAT(line, StartsWith("llorch-cpud: "));
  EXPECT_THAT(line, HasSubstr(R"("un\x1b[31mheard\x0aof)"));
  EXPECT_THAT(line, HasSubstr("known: gpt2"));
  EXPECT_LT(line.size(), 1'000U);
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
}

// Somebody who asks for this many tokens and hears what comes.
class RunningStream {
 public:
  RunningStream(const WorkerFixture& worker, int max_tokens)
      : client_([this, &worker, max_tokens] {
          outcome_ = worker.execute(fmt::format(
              R"({{"job_id":"j","prompt":"x","max_tokens":{},"temperature":0}})", max_tokens));
        }) {}
  const ExecuteOutcome& wait() {
    client_.join();
    return outcome_;
  }

 private:
  ExecuteOutcome outcome_;
  std::jthread client_;  // last: it uses the other
};

TEST(WorkerShutdown, SigtermLetsAStreamFinish) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  RunningStream stream(worker, 150);
  ASSERT_TRUE(worker.wait_until_busy(1));
  worker.process().signal(SIGTERM);
  ASSERT_TRUE(worker.process().wait_for_err("draining"));
  const http::Response health = worker.get("/health");
  if (health.status != 0) {  // the stream may be over, and the port closed
    EXPECT_EQ(health.status, 503);
    EXPECT_THAT(health.body, HasSubstr("draining"));
    const ExecuteOutcome refused = worker.execute(R"({"job_id":"k","prompt":"x"})");
    if (refused.status != 0) {
      EXPECT_EQ(refused.status, 503) << refused.body;
    }
  }
  const ExecuteOutcome& outcome = stream.wait();
  ASSERT_TRUE(outcome.end.has_value()) << outcome.body;
  EXPECT_EQ(outcome.end->tokens_out, 150);
  EXPECT_EQ(worker.process().wait(), 0);
}

TEST(WorkerShutdown, TheSecondSignalIsNow) {
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  RunningStream stream(worker, 2000);
  ASSERT_TRUE(worker.wait_until_busy(1));
  worker.process().signal(SIGINT);
  ASSERT_TRUE(worker.process().wait_for_err("draining"));
  const auto since = std::chrono::steady_clock::now();
  worker.process().signal(SIGINT);
  EXPECT_EQ(worker.process().wait(seconds(10)), 130);
  EXPECT_LT(std::chrono::steady_clock::now() - since, seconds(5));
  const ExecuteOutcome& outcome = stream.wait();
  EXPECT_FALSE(outcome.end.has_value());
  ASSERT_TRUE(outcome.error.has_value()) << "a stream that is cut off says so";
  EXPECT_EQ(outcome.error->code, ErrorCode::Unavailable);
  EXPECT_THAT(outcome.error->message, HasSubstr("is stopping"));
}

// Forty streams, some running and some waiting: however the worker is told to hurry, each that runs
// ends with `end` or `error`, each that waits is a 503, and OpenAI's end with an error or [DONE].
class WorkerShutdownStreams : public testing::TestWithParam<std::string> {};

TEST_P(WorkerShutdownStreams, EveryOneHasALastEvent) {
  constexpr int kStreams = 40;
  WorkerFixture worker(kSlow);
  ASSERT_TRUE(worker.wait_until_healthy());
  std::vector<ExecuteOutcome> outcomes(kStreams);
  std::vector<std::string> chats(kStreams);
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clients.emplace_back([&, i] {
      if (i % 4 == 0) {
        chats[i] = worker
                       .post("/v1/completions",
                             R"({"prompt":"x","max_tokens":1500,"temperature":0,"stream":true})")
                       .body;
        return;
      }
      outcomes[i] = worker.execute(
          fmt::format(R"({{"job_id":"j{}","prompt":"x","max_tokens":1500,"temperature":0}})", i));
    });
  }
  const auto all_accepted = [&] {
    const contract::HealthReport health = worker.health();
    return health.slots_busy + health.queue_depth == kStreams;
  };
  while (!all_accepted()) std::this_thread::yield();
  const std::string how = GetParam();
  if (how == "signals") {
    worker.process().signal(SIGTERM);
    ASSERT_TRUE(worker.process().wait_for_err("draining"));
    worker.process().signal(SIGTERM);
  } else {
    EXPECT_EQ(worker.post("/shutdown", how).status, 202);
  }
  EXPECT_EQ(worker.process().wait(seconds(20)), how == "signals" ? 130 : 0);
  for (std::thread& client : clients) client.join();
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (i % 4 == 0) {
      const bool has_last = chats[i].find("\"error\":{") != std::string::npos ||
                            chats[i].find("data: [DONE]") != std::string::npos;
      EXPECT_TRUE(has_last) << i << ": " << chats[i];
      continue;
    }
    EXPECT_TRUE(outcomes[i].end || outcomes[i].error || outcomes[i].status == 503)
        << i << ": status " << outcomes[i].status << " " << outcomes[i].body;
    if (outcomes[i].error) {
      EXPECT_THAT(outcomes[i].error->message, HasSubstr("is stopping"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(However, WorkerShutdownStreams,
                         testing::Values("signals", R"({"timeout_sec":0})"));

TEST(WorkerShutdown, ByRequest) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  EXPECT_EQ(worker.post("/shutdown", "").status, 202);
  EXPECT_EQ(worker.process().wait(), 0);
}

TEST(WorkerShutdown, WhileLoading) {
  WorkerFixture worker(kSlow);
  worker.process().signal(SIGTERM);
  EXPECT_EQ(worker.process().wait(), 0) << worker.process().err();
}

TEST(WorkerSecurity, ATokenIsAskedForEverywhereButAtHealth) {
  const TempDir folder;
  const std::string token = "0123456789abcdef-secret";
  const std::string file = folder / "token";
  std::ofstream(file) << token << "\n";
  WorkerFixture worker(kQuick, {"--api-token-file", file});
  ASSERT_TRUE(worker.wait_until_healthy());
  EXPECT_EQ(worker.get("/v1/models").status, 401);
  EXPECT_EQ(worker.get("/metrics").status, 401);
  EXPECT_EQ(worker.post("/shutdown", "").status, 401);
  EXPECT_EQ(worker.execute(R"({"job_id":"j","prompt":"x"})").status, 401);
  http::Headers headers;
  headers.set("Authorization", "Bearer " + token);
  const ExecuteOutcome outcome =
      worker.execute(R"({"job_id":"j","prompt":"x","max_tokens":2,"temperature":0})", headers);
  EXPECT_EQ(outcome.status, 200) << outcome.body;
  EXPECT_THAT(worker.process().err(), Not(HasSubstr(token)));
}

TEST(WorkerLogs, AreJsonAndHoldNoText) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  http::Headers headers;
  headers.set("X-Correlation-Id", "trace-me-7");
  const ExecuteOutcome outcome = worker.execute(
      R"({"job_id":"log-job","prompt":"a private matter","stop":["hush hush"],"max_tokens":40,"temperature":0})",
      headers);
  ASSERT_TRUE(outcome.end.has_value());
  worker.post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"a private matter"}],"max_tokens":3})");
  worker.post("/execute", R"({"job_id":"bad job","prompt":"a private matter"})");
  worker.post("/shutdown", "");
  ASSERT_EQ(worker.process().wait(), 0);
  const std::string err = worker.process().err();
  EXPECT_THAT(err, Not(HasSubstr("private")));
  EXPECT_THAT(err, Not(HasSubstr("hush")));
  EXPECT_THAT(err, HasSubstr("\"correlation_id\":\"trace-me-7\""));
  EXPECT_THAT(err, HasSubstr("\"job_id\":\"log-job\""));
  EXPECT_THAT(err, Not(HasSubstr(outcome.text().substr(0, 12))));
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(json::parse(line).ok()) << line;
}

TEST(WorkerSettings, FlagBeforeEnvironmentBeforeFile) {
  const TempDir folder;
  const std::filesystem::path model = folder / "model";
  write_test_model(model);
  std::ofstream(folder / "config.toml")
      << "[worker]\nctx = 100\nmax-batch = 3\nlog-format = \"json\"\n"
         "[pool]\nmax-downloads = 7\n";
  const auto context_with = [&](std::vector<std::string> flags,
                                std::vector<std::string> environment) {
    std::vector<std::string> arguments = {"--worker-id",  "w",      "--model",
                                          model.string(), "--port", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    environment.push_back("LLORCH_CONFIG=" + (folder / "config.toml").string());
    ChildProcess process(cpud_program(), arguments, environment);
    EXPECT_TRUE(process.wait_for_err("\"message\":\"ready\"")) << process.err();
    const std::string err = process.err();
    const std::size_t at = err.find("\"context_length\":");
    return at == std::string::npos ? -1 : std::stoi(err.substr(at + 17));
  };
  EXPECT_EQ(context_with({}, {}), 100);
  EXPECT_EQ(context_with({}, {"LLORCH_CTX=200"}), 200);
  EXPECT_EQ(context_with({"--ctx", "300"}, {"LLORCH_CTX=200"}), 300);
}

}  // namespace
}  // namespace llorch::test
