// The commands of the fleet as a user types them, against an orchestrator whose answers are
// written here.
#include "cli/fleet_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "base/mutex.h"
#include "cli/fake_orchestrator.h"
#include "cli/sample_fleet.h"
#include "job_store/sqlite_store.h"
#include "support/child_process.h"
#include "support/eventually.h"

namespace llorch::cli {
namespace {

using test::ProgramOutcome;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

constexpr const char* kAccepted =
    R"({"job_id":"j1","status":"queued","queue_position":0,"predicted_start_ms":0,"events_url":"/v2/tasks/j1/events"})";
constexpr const char* kStarted =
    "event: started\ndata: "
    "{\"job_id\":\"j1\",\"model\":\"m\",\"started_at\":\"2026-01-01T00:00:00Z\",\"seed\":7}\nid: "
    "0\n\n";
constexpr const char* kEnd =
    "event: end\ndata: "
    "{\"tokens_out\":2,\"decode_time_ms\":5,\"stop_reason\":\"eos\",\"stop_sequence_matched\":null,"
    "\"prompt_tokens\":3,\"seed\":7}\nid: 2\n\n";

std::string token(int index, std::string_view text) {
  return fmt::format("event: token\ndata: {{\"t\":\"{}\",\"i\":{}}}\nid: {}\n\n", text, index,
                     index + 1);
}

TEST(FleetCommand, WithoutAnOrchestratorTheNextStepIsNamed) {
  const test::TempDir home;
  const std::vector<std::string> environment = {"LLORCH_HOME=" + home.path().string(),
                                                "LLORCH_ORCHESTRATOR="};
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"status"}, {"hosts"}, {"jobs", "list"}, {"why", "x"}, {"keys", "list"}}) {
    const ProgramOutcome outcome = test::run_program(LLORCH, words, environment);
    EXPECT_EQ(outcome.exit_code, 1) << words.front();
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("`llorch up` starts one"));
  }
  const ProgramOutcome typo = test::run_program(LLORCH, {"statsu"}, environment);
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("did you mean status"));
  const auto says = [&environment](const std::vector<std::string>& words) {
    const ProgramOutcome outcome = test::run_program(LLORCH, words, environment);
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_EQ(says({}), "llorch: no command is named; `llorch --help` shows them\n");
  EXPECT_EQ(says({"jobs"}), "llorch: no command is named; `llorch jobs --help` shows them\n");
  EXPECT_EQ(says({"plan"}), "llorch: MODEL is required; `llorch plan --help` says more\n");
  const ProgramOutcome address =
      test::run_program(LLORCH, {"status", "--orchestrator", "zz"}, environment);
  EXPECT_EQ(address.exit_code, 2);
  EXPECT_THAT(address.err, HasSubstr("--orchestrator: URL 'zz' does not begin with http://"));
  const ProgramOutcome down = test::run_program(LLORCH, {"down"}, environment);
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_THAT(down.out, HasSubstr("no orchestrator is running"));
}

TEST(FleetCommand, WhatCannotBeIsSaidBeforeAnythingStarts) {
  const test::TempDir home;
  const std::string in_home = "LLORCH_HOME=" + home.path().string();
  const auto says = [&](const std::vector<std::string>& words, int code,
                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> environment = more;  // the first of a name counts
    environment.insert(environment.end(), {in_home, "LLORCH_ORCHESTRATOR=", "LLORCH_POOL="});
    const ProgramOutcome outcome = test::run_program(LLORCH, words, environment);
    EXPECT_EQ(outcome.exit_code, code) << words.front() << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(says({"up", "a b"}, 2), HasSubstr("\"a b\" is no host"));
  const std::string odd = "LLORCH_ORCHESTRATOR=odd";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"up"}, {"status"}, {"run", "hello"}, {"bench"}, {"chat"}}) {
    EXPECT_THAT(says(words, 1, {odd}), HasSubstr("LLORCH_ORCHESTRATOR: URL 'odd' does not"));
  }
  EXPECT_THAT(says({"run", "--pool", "hello"}, 1, {"LLORCH_POOL=odd"}),
              HasSubstr("LLORCH_POOL: URL 'odd' does not"));
  EXPECT_THAT(says({"up"}, 1, {"LLORCH_ORCHESTRATOR=http://127.0.0.1:1"}),
              HasSubstr("no orchestrator answers"));
  EXPECT_THAT(says({"status", "--ca-file", "/nope"}, 1), HasSubstr("--ca-file: "));
  EXPECT_THAT(says({"status"}, 1, {"LLORCH_CA_FILE=/nope"}), HasSubstr("LLORCH_CA_FILE: "));
  EXPECT_THAT(says({"audit", "verify", "one", "two"}, 2),
              HasSubstr("there is no place for \"one\" \"two\" here"));
  EXPECT_FALSE(std::filesystem::exists(home.path() / "orchestrator.json"));
  EXPECT_FALSE(std::filesystem::exists(home.path() / "pool.json"));
}

TEST(FleetCommand, TheWayToTakeAKeyBackCanBeCopied) {
  for (const auto& [name, word] :
       {std::pair{"laptop", "laptop"}, {"x y", "'x y'"}, {"it's", "'it'\\''s'"}, {"-x", "'-x'"}}) {
    FakeOrchestrator fake;
    contract::KeyView key;
    key.name = name;
    key.scope = "infer";
    key.key = "llk_1_2";
    fake.answer(http::Method::Post, "/v2/keys", json::serialize(contract::write_fields(key)), 201);
    const ProgramOutcome outcome = fake.run({"keys", "add", "--", name});
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("`llorch keys revoke {}`", word)));
  }
}

TEST(FleetCommand, StatusAndHostsAreShown) {
  FakeOrchestrator fake;
  const contract::FleetStatus status = sample_status();
  fake.answer(http::Method::Get, "/v2/status", json::serialize(contract::write_fields(status)));
  fake.answer(http::Method::Get, "/v2/hosts",
              json::serialize(contract::write_fields(contract::HostList{status.hosts})));
  const ProgramOutcome text = fake.run({"status"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("local/worker-cpu-0"));
  const ProgramOutcome object = fake.run({"status", "--json"});
  EXPECT_EQ(json::parse(object.out)->at("hosts").at(1).at("state"), "gone");
  const ProgramOutcome hosts = fake.run({"hosts"});
  EXPECT_THAT(hosts.out, HasSubstr("no route to host"));
}

TEST(FleetCommand, AnAnswerStreamsToItsEnd) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  fake.events("/v2/tasks/{id}/events", std::string("event: queued\ndata: {}\n\n") + kStarted +
                                           token(0, "there was") + token(1, " a king.") + kEnd);
  const ProgramOutcome outcome = fake.run({"jobs", "submit", "--model", "m", "--prompt", "Once",
                                           "--class", "batch", "--pin", "anna", "--seed", "7"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "there was a king.\n");
  const json::Value body = *json::parse(fake.bodies().front());
  EXPECT_EQ(body.at("prompt"), "Once");
  EXPECT_EQ(body.at("mode"), "pin");
  EXPECT_EQ(body.at("host"), "anna");
  EXPECT_EQ(body.at("class"), "batch");
  EXPECT_EQ(body.at("seed"), 7);
  const ProgramOutcome object =
      fake.run({"jobs", "submit", "--model", "m", "--prompt", "Once", "--json"});
  EXPECT_EQ(json::parse(object.out)->at("text"), "there was a king.");
  const ProgramOutcome detached =
      fake.run({"jobs", "submit", "--model", "m", "--prompt", "Once", "--detach"});
  EXPECT_EQ(detached.out, "j1\n");
}

TEST(FleetCommand, ABrokenConnectionIsTakenUpBehindTheLastEvent) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  std::atomic<int> calls = 0;
  fake.on(http::Method::Get, "/v2/tasks/{id}/events",
          [&calls](const http::Request& request) -> Result<http::Response> {
            const std::string after(request.headers.find("Last-Event-ID").value_or(""));
            const int call = calls++;
            if (call == 1) return Error{ErrorCode::Unavailable, "starting"};
            const bool goes_on = call == 2 && after == "1";
            return http::Response(200, "text/event-stream",
                                  goes_on ? token(1, " a king.") + kEnd
                                          : std::string(kStarted) + token(0, "there was"));
          });
  const ProgramOutcome outcome = fake.run({"jobs", "submit", "-m", "m", "-p", "Once"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "there was a king.\n");
  EXPECT_EQ(calls, 3);
}

// Its task goes on until it is cancelled.
void answer_without_end(FakeOrchestrator& fake) {
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  fake.events("/v2/tasks/{id}/events", std::string(kStarted) + token(0, "there was"));
  fake.answer(http::Method::Delete, "/v2/tasks/{id}",
              R"({"job_id":"j1","status":"cancelled","stop_ms":12.5})");
}

TEST(FleetCommand, CtrlCCancelsTheJob) {
  FakeOrchestrator fake;
  answer_without_end(fake);
  test::ChildProcess child(LLORCH, {"jobs", "submit", "-m", "m", "-p", "Once"}, fake.environment());
  EXPECT_TRUE(test::eventually([&child] { return !child.out().empty(); }));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait(), 130) << child.err();
  EXPECT_TRUE(fake.was_asked("DELETE /v2/tasks/j1"));
  EXPECT_THAT(child.err(), HasSubstr("j1 was cancelled within 1"));
}

TEST(FleetCommand, CtrlCOfAFileSaysWhatIsLeft) {
  FakeOrchestrator fake;
  answer_without_end(fake);
  const std::filesystem::path file = fake / "prompts.jsonl";
  std::ofstream(file) << "\"p0\"\n\"p1\"\n\"p2\"\n";
  test::ChildProcess child(LLORCH,
                           {"jobs", "submit", "-m", "m", "--file", file.string(), "--out",
                            (fake / "out.jsonl").string(), "--parallel", "1", "--json"},
                           fake.environment());
  EXPECT_TRUE(test::eventually([&fake] { return fake.was_asked("GET /v2/tasks/j1/events"); }));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait(), 130) << child.err();
  EXPECT_THAT(child.err(), HasSubstr("0 of 3 done, 0 failed, 1 cancelled, 2 not begun"));
  EXPECT_EQ(json::parse(child.out())->at("cancelled"), 1);
}

// Commands that wait for an answer which does not come.
TEST(FleetCommand, CtrlCCountsWhileTheOrchestratorIsSilent) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"status", "--watch"}, {"down", "anna"}, {"jobs", "submit", "-m", "m", "-p", "Once"}}) {
    FakeOrchestrator fake;
    std::atomic<bool> is_asked = false;
    std::atomic<bool> is_over = false;
    const auto stay_silent = [&](const http::Request&) -> Result<http::Response> {
      is_asked = true;
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Error{ErrorCode::Unavailable, "at last"};
    };
    fake.on(http::Method::Get, "/v2/status", stay_silent);
    fake.on(http::Method::Post, "/v2/hosts/{host}/down", stay_silent);
    fake.on(http::Method::Post, "/v2/tasks", stay_silent);
    test::ChildProcess child(LLORCH, words, fake.environment());
    EXPECT_TRUE(test::eventually([&is_asked] { return is_asked.load(); }));
    const auto pressed = std::chrono::steady_clock::now();
    child.signal(SIGINT);
    EXPECT_EQ(child.wait(), 130) << words.front() << child.err();
    EXPECT_LT(std::chrono::steady_clock::now() - pressed, std::chrono::seconds(10))
        << words.front();
    is_over = true;
  }
}

TEST(FleetCommand, AListIsReadToTheNumberThatIsWanted) {
  FakeOrchestrator fake;
  fake.on(http::Method::Get, "/v2/tasks", [](const http::Request& request) {
    contract::TaskPage page;
    contract::TaskView task = sample_status().tasks.front();
    const bool is_first = request.raw_query.find("after=7") == std::string::npos;
    EXPECT_NE(request.raw_query.find("status=live"), std::string::npos) << request.raw_query;
    EXPECT_NE(request.raw_query.find(is_first ? "limit=3" : "limit=2"), std::string::npos);
    task.job_id = is_first ? "j1" : "j2";
    page.tasks = {task};
    if (is_first) page.next = "7";
    return Result<http::Response>(
        http::Response(200, "application/json", json::serialize(contract::write_fields(page))));
  });
  const ProgramOutcome list = fake.run({"jobs", "list", "--status", "live", "--limit", "3"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("j1"));
  EXPECT_THAT(list.out, HasSubstr("j2"));
  EXPECT_EQ(fake.run({"jobs", "list", "--status", "lively"}).exit_code, 2);
}

TEST(FleetCommand, ABatchWaitsForAnOrchestratorThatIsStartedAgain) {
  FakeOrchestrator fake;
  base::Mutex mutex;
  std::vector<std::string> words;
  fake.on(http::Method::Post, "/v2/tasks", [&](const http::Request& request) {
    const base::MutexLock lock(mutex);
    words.emplace_back(request.headers.find("Idempotency-Key").value_or(""));
    if (words.size() < 3)
      return Result<http::Response>(Error{ErrorCode::Unavailable, "it is starting"});
    return Result<http::Response>(http::Response(202, "application/json", kAccepted));
  });
  fake.events("/v2/tasks/{id}/events", std::string(kStarted) + token(0, "there was") + kEnd);
  std::ofstream(fake / "prompts") << "\"Once\"\n\"Twice\"\n";
  const ProgramOutcome outcome = fake.run(
      {"jobs", "submit", "-m", "m", "--file", (fake / "prompts").string(), "--parallel", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const base::MutexLock lock(mutex);
  ASSERT_EQ(words.size(), 4U);
  EXPECT_NE(words[0], "");
  EXPECT_EQ(words[0], words[1]);
  EXPECT_EQ(words[1], words[2]) << "the same prompt is the same job";
  EXPECT_NE(words[2], words[3]);
}

TEST(FleetCommand, AFailureNamesTheJobAndTheNextStep) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  fake.events("/v2/tasks/{id}/events",
              "event: error\ndata: {\"code\":\"INSUFFICIENT_MEMORY\",\"message\":\"no host has "
              "room\",\"retriable\":true}\n\n");
  const ProgramOutcome outcome = fake.run({"jobs", "submit", "-m", "m", "-p", "Once"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("j1: no host has room (`llorch why j1`)"));
}

TEST(FleetCommand, AFileIsAnsweredInItsOrder) {
  FakeOrchestrator fake;
  std::atomic<int> jobs = 0;
  fake.on(http::Method::Post, "/v2/tasks",
          [&jobs](const http::Request& request) -> Result<http::Response> {
            // A full queue is asked again.
            if (jobs++ == 0) return Error{ErrorCode::QueueFull, "50 tokens a day"};
            const std::string prompt(json::parse(request.body)->at("prompt").as_string());
            return http::Response(
                202, "application/json",
                fmt::format(R"({{"job_id":"{}","status":"queued","queue_position":0,)"
                            R"("predicted_start_ms":0,"events_url":""}})",
                            prompt));
          });
  fake.on(http::Method::Get, "/v2/tasks/{id}/events",
          [](const http::Request& request) -> Result<http::Response> {
            const std::string job = request.path.substr(std::string("/v2/tasks/").size(), 2);
            return http::Response(200, "text/event-stream",
                                  kStarted + token(0, "answer to " + job) + kEnd);
          });
  const std::filesystem::path file = fake / "prompts.jsonl";
  const std::filesystem::path out = fake / "out.jsonl";
  std::ofstream(file) << "\"p0\"\n{\"prompt\":\"p1\",\"id\":\"one\"}\n\nnonsense\n\"p3\"\n";
  const ProgramOutcome outcome = fake.run({"jobs", "submit", "-m", "m", "--file", file.string(),
                                           "--out", out.string(), "--parallel", "3"});
  EXPECT_EQ(outcome.exit_code, 1) << "one line is wrong";
  EXPECT_THAT(outcome.err, HasSubstr("3 of 4 done, 1 failed"));
  EXPECT_THAT(outcome.err, HasSubstr("it waits to be taken: 50 tokens a day\n"));
  std::ifstream in(out);
  std::vector<std::string> texts;
  for (std::string line; std::getline(in, line);) {
    const json::Value result = *json::parse(line);
    EXPECT_EQ(result.at("index"), texts.size());
    texts.emplace_back(
        result.at(result.as_object().contains("error") ? "status" : "text").as_string());
    if (texts.size() == 2) {
      EXPECT_EQ(result.at("id"), "one");
    }
  }
  EXPECT_THAT(texts, ElementsAre("answer to p0", "answer to p1", "failed", "answer to p3"));
}

TEST(FleetCommand, AFileThatCannotBeReadIsNamed) {
  FakeOrchestrator fake;
  for (const std::string& file : {(fake / "").string(), (fake / "nothing").string()}) {
    const ProgramOutcome outcome = fake.run({"jobs", "submit", "-m", "m", "--file", file});
    EXPECT_EQ(outcome.exit_code, 1) << file;
    EXPECT_THAT(outcome.err, HasSubstr("cannot be read")) << file;
  }
}

TEST(FleetCommand, ABatchIntoAFileHasItsNumbersAsJson) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  fake.events("/v2/tasks/{id}/events", std::string(kStarted) + token(0, "yes") + kEnd);
  const std::filesystem::path file = fake / "prompts.jsonl";
  std::ofstream(file) << "\"p0\"\n\"p1\"\n";
  const std::string out = (fake / "out.jsonl").string();
  const ProgramOutcome outcome =
      fake.run({"jobs", "submit", "-m", "m", "--file", file.string(), "--out", out, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::Value object = *json::parse(outcome.out);
  EXPECT_EQ(object.at("total"), 2);
  EXPECT_EQ(object.at("done"), 2);
  EXPECT_EQ(object.at("failed"), 0);
  EXPECT_EQ(object.at("out"), json::Value(out));
}

TEST(FleetCommand, TheLogOfACompletionIsItsText) {
  FakeOrchestrator fake;
  contract::TaskView task = sample_status().tasks.front();
  task.kind = "completion";
  fake.answer(http::Method::Get, "/v2/tasks/{id}", json::serialize(contract::write_fields(task)));
  const auto chunk = [](int index, std::string_view text) {
    return fmt::format(R"(data: {{"object":"text_completion","choices":[{{"text":"{}","index":{},)"
                       R"("finish_reason":null}}]}})",
                       text, index) +
           "\n\n";
  };
  fake.events("/v2/tasks/{id}/events", chunk(0, "there") + chunk(1, "a ") + chunk(0, " was") +
                                           chunk(1, "king") + "data: [DONE]\n\n");
  const ProgramOutcome outcome = fake.run({"jobs", "logs", "j1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "there was\n\n(choice 2)\na king\n");
}

TEST(FleetCommand, TopAsJsonIsOneLook) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Get, "/v2/status",
              json::serialize(contract::write_fields(sample_status())));
  const ProgramOutcome outcome = fake.run({"top", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)->at("workers").at(0).at("id"), "worker-cpu-0");
  EXPECT_EQ(fake.run({"top"}).exit_code, 2) << "there is no terminal";
}

TEST(FleetCommand, AChatWithAModelWithoutATemplateEndsAtOnce) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks", kAccepted, 202);
  fake.events(
      "/v2/tasks/{id}/events",
      "data: {\"error\":{\"message\":\"the model has no chat template\",\"code\":null}}\n\n");
  const std::filesystem::path lines = fake / "lines";
  std::ofstream(lines) << "Hello\nAre you there?\n";
  const ProgramOutcome outcome = test::run_program(
      "/bin/sh", {"-c", fmt::format("exec {} chat -m m < {}", LLORCH, lines.string())},
      fake.environment());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err.find("chat template"), outcome.err.rfind("chat template")) << outcome.err;
  EXPECT_EQ(fake.bodies().size(), 1U);
}

TEST(FleetCommand, KeysAreMadeListedAndRevoked) {
  FakeOrchestrator fake;
  contract::KeyView key;
  key.id = "k1";
  key.name = "laptop";
  key.scope = "infer";
  key.tokens_per_day = 1000;
  key.tokens_today = 10;
  fake.answer(http::Method::Get, "/v2/keys",
              json::serialize(contract::write_fields(contract::KeyList{{key}})));
  fake.answer(http::Method::Delete, "/v2/keys/{id}", json::serialize(contract::write_fields(key)));
  key.key = "llk_k1_secret";
  fake.answer(http::Method::Post, "/v2/keys", json::serialize(contract::write_fields(key)), 201);
  const ProgramOutcome made = fake.run({"keys", "add", "laptop", "--rate", "60/min"});
  EXPECT_EQ(made.out, "llk_k1_secret\n") << made.err;
  EXPECT_EQ(json::parse(fake.bodies().front())->at("requests_per_minute"), 60);
  fake.run({"keys", "add", "ci", "--models", "a*,b*", "--models", "c"});
  EXPECT_EQ(json::serialize(json::parse(fake.bodies().back())->at("models")), R"(["a*","b*","c"])");
  EXPECT_EQ(fake.run({"keys", "add", "laptop", "--rate", "often"}).exit_code, 2);
  EXPECT_EQ(fake.run({"keys", "add", "laptop", "--rate", "0/min"}).exit_code, 2)
      << "that would be no bound at all";
  EXPECT_EQ(fake.run({"keys", "add", "laptop", "--tokens-per-day", "0"}).exit_code, 2);
  const ProgramOutcome negative = fake.run({"keys", "add", "laptop", "--tokens-per-day", "-5"});
  EXPECT_EQ(negative.exit_code, 2);
  EXPECT_THAT(negative.err, HasSubstr("1 or more"));
  EXPECT_THAT(negative.err, Not(HasSubstr("00000"))) << "no limits of the machine";
  const ProgramOutcome list = fake.run({"keys", "list"});
  EXPECT_THAT(list.out, HasSubstr("10 of 1"));
  EXPECT_THAT(list.out, Not(HasSubstr("secret")));
  EXPECT_THAT(fake.run({"keys", "revoke", "laptop"}).out, HasSubstr("revoked"));
}

TEST(FleetCommand, BackupAndRestore) {
  FakeOrchestrator fake;
  const std::filesystem::path home = fake / "home";
  std::filesystem::create_directories(home);
  const std::filesystem::path store = home / "llorch.db";
  fake.on(http::Method::Post, "/v2/backup",
          [&store](const http::Request& request) -> Result<http::Response> {
            const std::string file(json::parse(request.body)->at("file").as_string());
            const auto opened = job_store::open_sqlite_store({.file = store}, nullptr);
            if (!opened.ok()) return opened.error();
            if (const Status done = (*opened)->backup(file); !done.ok()) return done.error();
            return http::Response(200, "application/json", R"({"file":"x","bytes":24})");
          });
  const std::string copy = (fake / "copy.db").string();
  const ProgramOutcome made = fake.run({"backup", copy});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(std::filesystem::status(copy).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(fake.run({"backup", copy}).exit_code, 1) << "never over a file that is there";
  std::ofstream(store, std::ios::trunc) << "old";
  const ProgramOutcome restored = fake.run({"restore", copy});
  EXPECT_EQ(restored.exit_code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("llorch.db.before-restore"));
  EXPECT_EQ(std::filesystem::file_size(store.string() + ".before-restore"), 3U);
  EXPECT_EQ(fake.run({"restore", copy}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(store.string() + ".before-restore-2"));
  std::ofstream(fake / "other") << "something else";
  EXPECT_EQ(fake.run({"restore", (fake / "other").string()}).exit_code, 1);
  std::fstream(copy, std::ios::in | std::ios::out | std::ios::binary).seekp(4096)
      << std::string(4096, '\xa5');
  const ProgramOutcome damaged = fake.run({"restore", copy});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("damaged"));
}

}  // namespace
}  // namespace llorch::cli
