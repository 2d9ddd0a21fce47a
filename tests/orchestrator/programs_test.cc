// One machine end to end: a task is queued, its model is loaded, its tokens come, and its end.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "fleet_home.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/notify_socket.h"
#include "support/run_program.h"
#include "support/terminal_program.h"
#include "worker/test_model.h"

namespace llorch::test {
namespace {

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string error_code(const Answer& answer) {
  const json::Value* error =
      answer.body.is_object() ? answer.body.get_object().if_contains("error") : nullptr;
  if (error == nullptr || !error->is_object()) return {};
  return std::string(error->get_object().at("code").as_string());
}

bool has_tokens(const Followed& followed, std::size_t count) {
  return followed.count("token") >= count;
}

// The lines of its log that lie in a file of the folder, where none belongs.
std::string log_lines_in(const std::filesystem::path& folder) {
  std::string found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("\"module\":\"orchestrator\"") != std::string::npos)
      found += entry.path().string() + "\n";
  }
  return found;
}

TEST(Orchestratord, ItsLogGoesIntoNoOtherFileWhereItsStreamsAreClosed) {
  const TempDir home;
  const std::string closed =
      std::string("exec ") + LLORCH_ORCHESTRATORD + " --port 0 --local-pool false <&- >&- 2>&-";
  ChildProcess daemon("/bin/sh", {"-c", closed},
                      {"LLORCH_HOME=" + home.path().string(), "LLORCH_CONFIG=/dev/null"});
  ASSERT_TRUE(
      eventually([&] { return std::filesystem::exists(home.path() / "orchestrator.json"); }));
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0);
  EXPECT_EQ(log_lines_in(home.path()), "");
}

TEST(Orchestratord, LoadsTheModelAndAnswersATask) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  const std::string job = home.submit(story(40));
  const Followed whole = home.follow(job);
  ASSERT_EQ(whole.count("end"), 1U) << home.err();
  EXPECT_EQ(whole.events.back().event, "end");
  EXPECT_EQ(whole.count("started"), 1U);
  EXPECT_GE(whole.count("queued") + whole.count("loading"), 1U);
  EXPECT_FALSE(whole.text.empty());

  const Answer task = home.get("/v2/tasks/" + job);
  EXPECT_EQ(task.text("status"), "completed");
  EXPECT_EQ(task.text("host"), "local");
  EXPECT_EQ(task.number("tokens_out"), 40);
  EXPECT_EQ(task.number("seed"), 7);

  // Who comes back hears what is behind the position it names, and nothing else.
  std::string head;
  std::string position;
  for (const http::SseEvent& event : whole.events) {
    if (event.event != "token") continue;
    head += json::parse(event.data)->as_object().at("t").as_string();
    position = event.id;
    if (head.size() >= whole.text.size() / 2) break;
  }
  const Followed rest = home.follow(job, position);
  EXPECT_EQ(head + rest.text, whole.text);
  EXPECT_EQ(rest.count("started"), 0U);
  EXPECT_EQ(rest.count("end"), 1U);

  const Answer why = home.get("/v2/tasks/" + job + "/why");
  EXPECT_EQ(why.status, 200);
  EXPECT_EQ(why.body.as_object().at("dispatches").as_array().size(), 1U);
  const Answer page = home.get("/v2/tasks?status=completed&limit=10");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.body.as_object().at("tasks").as_array().size(), 1U);
  const Answer status = home.get("/v2/status");
  ASSERT_EQ(status.status, 200);
  EXPECT_EQ(status.number("completed_total"), 1);
  EXPECT_EQ(status.body.as_object().at("workers").as_array().size(), 1U);
  EXPECT_EQ(home.stop(), 0);
}

TEST(Orchestratord, TellsItsServiceManager) {
  const TempDir folder;
  NotifySocket manager(folder / "notify");
  ChildProcess orchestrator(LLORCH_ORCHESTRATORD, {"--port", "0", "--local-pool", "false"},
                            {"LLORCH_HOME=" + folder.path().string(), manager.variable()});
  EXPECT_TRUE(manager.hears("READY=1\nSTATUS=listening on http://127.0.0.1:")) << manager.heard();
  EXPECT_FALSE(std::filesystem::is_empty(folder.path())) << "ready means that its store is there";
  orchestrator.signal(SIGTERM);
  EXPECT_TRUE(manager.hears("STOPPING=1")) << manager.heard();
  EXPECT_EQ(orchestrator.wait(), 0);
}

// As in our unit: the pool is a service's, which may be starting just then.
TEST(Orchestratord, StartsNoPoolWhereAServiceDoes) {
  const TempDir folder;
  const std::vector<std::string> home = {"LLORCH_HOME=" + folder.path().string(),
                                         "LLORCH_ORCHESTRATOR=", "LLORCH_POOL=", "LLORCH_CONFIG="};
  ChildProcess orchestrator(LLORCH_ORCHESTRATORD, {"--port", "0", "--start-pool", "false"}, home);
  std::string said;
  const auto tells = [&](std::string_view text) {
    return eventually([&] {
      said = run_program(LLORCH_CLI, {"status", "--json"}, home).out;
      return said.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(tells("\"name\":\"local\"")) << said;
  EXPECT_FALSE(std::filesystem::exists(folder / "pool.json"));
  ChildProcess pool(
      (std::filesystem::path(LLORCH_ORCHESTRATORD).parent_path() / "pool-managerd").string(),
      {"--port", "0"}, home);
  EXPECT_TRUE(tells("\"state\":\"connected\"")) << said;
  EXPECT_FALSE(std::filesystem::exists(folder / "logs/pool.log")) << "where one of its own writes";
  orchestrator.signal(SIGTERM);
  EXPECT_EQ(orchestrator.wait(), 0);
  pool.signal(SIGTERM);
  EXPECT_EQ(pool.wait(), 0);
}

TEST(Orchestratord, CancelsARunningTaskAndSaysHowLongThatTook) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  const std::string job = home.submit(story(1000));
  home.follow(job, {}, [](const Followed& f) { return has_tokens(f, 5); });
  const Answer stopped = home.remove("/v2/tasks/" + job);
  EXPECT_EQ(stopped.status, 200);
  EXPECT_EQ(stopped.text("status"), "cancelled");
  EXPECT_GT(stopped.number("stop_ms"), 0);
  const Followed after = home.follow(job);
  ASSERT_EQ(after.count("error"), 1U);
  EXPECT_NE(after.find("error")->data.find("CANCELLED"), std::string::npos);
  const Answer again = home.remove("/v2/tasks/" + job);
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.text("status"), "cancelled");
  EXPECT_EQ(home.remove("/v2/tasks/" + std::string(32, '0')).status, 404);
}

TEST(Orchestratord, RefusesWhatItCannotTakeInPlainWords) {
  FleetHome home({"--max-jobs", "1"});
  ASSERT_NO_FATAL_FAILURE(home.start());
  json::Object wrong = story(10);
  wrong["model"] = "buildin";
  const Answer unknown = home.post("/v2/tasks", wrong);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(json::serialize(unknown.body).find("builtin"), std::string::npos);
  json::Object odd = story(10);
  odd["temperature"] = 9;
  odd["colour"] = "blue";
  const Answer invalid = home.post("/v2/tasks", odd);
  EXPECT_EQ(invalid.status, 400);
  const std::string said = json::serialize(invalid.body);
  EXPECT_NE(said.find("temperature"), std::string::npos) << said;
  EXPECT_NE(said.find("colour"), std::string::npos) << said;
  json::Object late = story(10);
  late["deadline_ms"] = now_ms() - 1000;
  EXPECT_EQ(home.post("/v2/tasks", late).status, 504);
  const Answer loud =
      home.post("/v2/keys", {{"name", "a\x1b[2Jb"}, {"models", json::Array{"m\n"}}});
  EXPECT_EQ(loud.status, 400) << "a name must not command terminals";
  EXPECT_NE(json::serialize(loud.body).find("control characters"), std::string::npos);

  const std::string job = home.submit(story(1000));
  const Answer full = home.post("/v2/tasks", story(10));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(error_code(full), "QUEUE_FULL");
  EXPECT_TRUE(full.headers.find("Retry-After").has_value());
  EXPECT_EQ(home.remove("/v2/tasks/" + job).text("status"), "cancelled");
}

TEST(Orchestratord, EndsATaskAtItsDeadline) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  // The worker is there before the clock runs, and stands still: the answer cannot come in time.
  const std::string first = home.submit(story(1));
  home.follow(first);
  const pid_t worker = home.pid_of_worker(home.get("/v2/tasks/" + first).text("worker"));
  ASSERT_GT(worker, 1);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  json::Object late = story(10);
  late["deadline_ms"] = now_ms() + 3000;
  const Followed followed = home.follow(home.submit(late));
  EXPECT_EQ(::kill(worker, SIGCONT), 0);
  EXPECT_EQ(followed.count("end"), 0U);
  ASSERT_EQ(followed.count("error"), 1U);
  EXPECT_NE(followed.find("error")->data.find("INFERENCE_TIMEOUT"), std::string::npos);
}

TEST(Orchestratord, AnOrderlyEndIsSaidOnConnectionsAndTasksGoOn) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  const std::string task = home.submit(story(300));
  home.follow(task, {}, [](const Followed& f) { return has_tokens(f, 3); });
  json::Object long_story{{"model", "builtin"}, {"prompt", "Once"}, {"max_tokens", 900}};
  long_story["temperature"] = 1.5;
  Answer whole;
  std::jthread waiting([&] { whole = home.post("/v1/completions", long_story); });
  EXPECT_TRUE(home.wait_until([&] { return home.get("/v2/status").number("attached") == 1; }));
  EXPECT_EQ(home.stop(), 0);
  waiting.join();
  EXPECT_EQ(whole.status, 503) << json::serialize(whole.body);
  EXPECT_NE(json::serialize(whole.body).find("the orchestrator was stopped"), std::string::npos);
  ASSERT_NO_FATAL_FAILURE(home.start());
  EXPECT_EQ(home.follow(task).count("end"), 1U) << home.err();
}

TEST(Orchestratord, AConversationAtATerminalIsAnsweredByTheFleet) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  write_test_model(home.folder() / "tale");
  const std::vector<std::string> environment = {
      "LLORCH_HOME=" + home.folder().path().string(),
      "LLORCH_ORCHESTRATOR=", "LLORCH_TOKEN=", "LLORCH_CONFIG=", "LLORCH_POOL="};
  ASSERT_EQ(run_program(LLORCH_POOL,
                        {"models", "register", "tale", "--path", (home.folder() / "tale").string()},
                        environment)
                .exit_code,
            0);
  TerminalProgram chat(LLORCH_CLI, {"chat", "-m", "tale", "-n", "12", "--seed", "3"}, environment);
  for (const char* message : {"Tell me a tale.\r", "And another one.\r"}) {
    ASSERT_TRUE(chat.shows(">>> ")) << chat.seen();
    chat.type(message);
  }
  ASSERT_TRUE(chat.shows(">>> ")) << chat.seen();
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0) << chat.seen();
  const Answer page = home.get("/v2/tasks?status=completed&limit=10");
  ASSERT_EQ(page.status, 200);
  const json::Array& tasks = page.body.as_object().at("tasks").as_array();
  ASSERT_EQ(tasks.size(), 2U) << json::serialize(page.body) << chat.seen();
  for (const json::Value& task : tasks) {
    EXPECT_EQ(task.at("model"), "tale");
    EXPECT_EQ(task.at("tokens_out"), 12);
  }
}

TEST(Orchestratord, TheSameIdempotencyKeyMeansTheSameJob) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  http::Headers headers;
  headers.add("Idempotency-Key", "one-and-only");
  const Answer first = home.post("/v2/tasks", story(10), headers);
  ASSERT_EQ(first.status, 202);
  const Answer second = home.post("/v2/tasks", story(10), headers);
  EXPECT_EQ(second.status, 202);
  EXPECT_EQ(second.text("job_id"), first.text("job_id"));
  EXPECT_EQ(home.post("/v2/tasks", story(11), headers).status, 409);
}

}  // namespace
}  // namespace llorch::test
