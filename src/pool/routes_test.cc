// Every endpoint of the pool's API over a real server, with recording fakes behind it.
#include "pool/routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <new>
#include <set>
#include <thread>

#include "base/file.h"
#include "http/test_server.h"
#include "pool/endpoint_table.h"
#include "pool/fake_pool.h"
#include "support/schema_check.h"

namespace llorch::pool {
namespace {

using contract::PoolWorkerState;
using http::test::body_of;
using http::test::header_of;
using http::test::status_of;
using ::llorch::test::check_named;
using test::a_worker;
using test::events_of;
using test::FakePool;
using test::json_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string code_of(std::string_view response) {
  const json::Value body = json_of(response);
  EXPECT_THAT(check_named(openapi_document(), "Error", body), IsEmpty()) << response;
  return std::string(json::view(body.at("error").at("code").get_string()));
}

std::string message_of(std::string_view response) {
  const json::Value body = json_of(response);
  return std::string(json::view(body.at("error").at("message").get_string()));
}

std::vector<std::string> failed_fields(std::string_view response) {
  std::vector<std::string> fields;
  const json::Value body = json_of(response);
  if (!body.at("error").get_object().contains("errors")) return fields;
  for (const json::Value& error : body.at("error").at("errors").get_array())
    fields.emplace_back(json::view(error.at("field").get_string()));
  return fields;
}

void expect_fits(std::string_view schema, std::string_view response) {
  EXPECT_THAT(check_named(openapi_document(), schema, json_of(response)), IsEmpty()) << response;
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// A model file that describe_files accepts.
std::string register_model(const FakePool& pool, const std::string& id = "m") {
  const std::string path = ::llorch::test::source_path("tests/golden/gpt2_tiny").string();
  return pool.send("POST", "/v2/models", fmt::format(R"({{"id":"{}","path":"{}"}})", id, path));
}

TEST(PoolHealth, CountsWorkersAndSaysWhoItIs) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Ready));
  pool.workers.put(a_worker("worker-cpu-1", PoolWorkerState::Busy));
  pool.workers.put(a_worker("worker-cpu-2", PoolWorkerState::Starting));
  pool.workers.put(a_worker("worker-cpu-3", PoolWorkerState::Failed));
  register_model(pool);
  const std::string response = pool.get("/health");
  EXPECT_EQ(status_of(response), 200);
  expect_fits("Health", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("status"), "healthy");
  EXPECT_EQ(body.at("workers_total"), 3);
  EXPECT_EQ(body.at("workers_ready"), 2);
  EXPECT_EQ(body.at("workers_failed"), 1);
  EXPECT_EQ(body.at("confinement"), "files by landlock (ABI 3), ports not");
  EXPECT_FALSE(body.at("pool_id").get_string().empty());
}

TEST(PoolHealth, SaysWhatIsWrong) {
  FakePool pool;
  std::ofstream(pool.home.catalog_file()) << "{\"version\":\"1.0\",\"models\":[{]}";
  pool.host.change([](auto& host) { host.disk_free_bytes = 1 << 20; });
  const std::string response = pool.get("/health");
  EXPECT_EQ(status_of(response), 503);
  expect_fits("Health", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("status"), "unhealthy");
  ASSERT_EQ(body.at("reasons").get_array().size(), 2U);
  EXPECT_THAT(json::serialize(body.at("reasons")),
              AllOf(HasSubstr("catalog.json"), HasSubstr("1.00 MiB free")));
  EXPECT_EQ(body.at("error").at("code"), "UNAVAILABLE");
  EXPECT_EQ(header_of(response, "Retry-After"), "1");
  // It mends itself with the file.
  std::filesystem::remove(pool.home.catalog_file());
  pool.host.change([](auto& host) { host.disk_free_bytes = std::int64_t{1} << 40; });
  EXPECT_EQ(status_of(pool.get("/health")), 200);
}

TEST(PoolHealth, SaysWhenItStartsAndWhenItEnds) {
  FakePool pool;
  pool.phase = PoolPhase::Starting;
  EXPECT_EQ(json_of(pool.get("/health")).at("status"), "starting");
  pool.phase = PoolPhase::Draining;
  const std::string draining = pool.get("/health");
  EXPECT_EQ(status_of(draining), 503);
  EXPECT_EQ(json_of(draining).at("status"), "draining");
  const std::string refused =
      pool.send("POST", "/v2/workers/start", R"({"backend":"cpu","model":"m"})");
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_EQ(code_of(refused), "UNAVAILABLE");
  EXPECT_THAT(pool.workers.calls(), IsEmpty());
}

TEST(PoolState, HoldsEverything) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Ready));
  register_model(pool);
  const std::string response = pool.get("/v2/state");
  EXPECT_EQ(status_of(response), 200);
  expect_fits("State", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("host").at("hostname"), "attic");
  EXPECT_EQ(body.at("workers").at(0).at("id"), "worker-cpu-0");
  std::vector<std::string> ids;
  for (const json::Value& model : body.at("models").get_array())
    ids.emplace_back(json::view(model.at("id").get_string()));
  EXPECT_THAT(ids, AllOf(Contains("m"), Contains("builtin")));
}

TEST(PoolWorkers, StartsWhatWasAskedFor) {
  FakePool pool;
  const std::string response =
      pool.send("POST", "/v2/workers/start",
                R"({"backend":"cuda","model":"m","gpu":1,"ctx":4096,"slots":3,"kv":"q8_0"})");
  EXPECT_EQ(status_of(response), 202);
  expect_fits("Worker", response);
  EXPECT_EQ(json_of(response).at("state"), "starting");
  const contract::StartWorkerRequest asked = pool.workers.last_start();
  EXPECT_EQ(asked.backend, "cuda");
  EXPECT_EQ(asked.gpu, 1);
  EXPECT_EQ(asked.context, 4096);
  EXPECT_EQ(asked.slots, 3);
  EXPECT_EQ(asked.kv_type, "q8_0");
}

TEST(PoolWorkers, EveryFailureOfARequestAtOnce) {
  FakePool pool;
  const std::string response = pool.send("POST", "/v2/workers/start",
                                         R"({"backend":"gpu","ctx":0,"surprise":1,"kv":"f32"})");
  EXPECT_EQ(status_of(response), 400);
  EXPECT_EQ(code_of(response), "INVALID_REQUEST");
  EXPECT_THAT(failed_fields(response),
              ::testing::UnorderedElementsAre("backend", "model", "ctx", "kv", "surprise"));
  EXPECT_THAT(pool.workers.calls(), IsEmpty());
}

TEST(PoolWorkers, RefusalsComeThrough) {
  FakePool pool;
  pool.workers.fail_starts({ErrorCode::OutOfMemory, "needs 9 GiB, 8 GiB are free"});
  const std::string response =
      pool.send("POST", "/v2/workers/start", R"({"backend":"cpu","model":"m"})");
  EXPECT_EQ(status_of(response), 503);
  EXPECT_EQ(code_of(response), "INSUFFICIENT_MEMORY");
  EXPECT_EQ(message_of(response), "needs 9 GiB, 8 GiB are free");
}

TEST(PoolWorkers, ListShowStopRestart) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Ready));
  expect_fits("WorkerList", pool.get("/v2/workers"));
  expect_fits("Worker", pool.get("/v2/workers/worker-cpu-0"));
  const std::string restarted = pool.send("POST", "/v2/workers/worker-cpu-0/restart");
  EXPECT_EQ(status_of(restarted), 202);
  expect_fits("Worker", restarted);
  const std::string stopped = pool.send("POST", "/v2/workers/stop", R"({"id":"worker-cpu-0"})");
  EXPECT_EQ(status_of(stopped), 202);
  EXPECT_EQ(json_of(stopped).at("state"), "draining");
  EXPECT_EQ(
      status_of(pool.send("POST", "/v2/workers/stop", R"({"id":"worker-cpu-0","timeout_sec":0})")),
      202);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/workers/stop",
                                R"({"id":"worker-cpu-0","timeout_sec":3601})")),
            400);
  EXPECT_THAT(pool.workers.calls(), ElementsAre("restart worker-cpu-0", "stop worker-cpu-0",
                                                "stop worker-cpu-0 within 0 s"));
}

TEST(PoolWorkers, UnknownOnesAreNotFound) {
  FakePool pool;
  for (const std::string& response :
       {pool.get("/v2/workers/none"), pool.get("/v2/workers/none/logs"),
        pool.send("POST", "/v2/workers/none/restart"),
        pool.send("POST", "/v2/workers/stop", R"({"id":"none"})")}) {
    EXPECT_EQ(status_of(response), 404);
    EXPECT_EQ(code_of(response), "NOT_FOUND");
  }
}

TEST(PoolWorkers, BodiesAreCheckedEverywhere) {
  FakePool pool;
  pool.workers.put(a_worker("w", PoolWorkerState::Ready));
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/workers/stop", R"({"ids":"w"})")),
              ElementsAre("id", "ids"));
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/workers/w/restart", R"({"now":true})")),
              ElementsAre("now"));
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/shutdown", R"({"now":true})")),
              ElementsAre("now"));
  EXPECT_FALSE(pool.shutdown_requested);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/workers/stop", "[]")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/workers/stop", "{")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/workers/stop", R"({"id":"w"})", "text/plain")), 415);
  EXPECT_EQ(status_of(pool.send("PUT", "/v2/workers/stop", "{}")), 405);
  EXPECT_EQ(status_of(pool.get("/v2/nothing")), 404);
  EXPECT_THAT(pool.workers.calls(), IsEmpty());
}

TEST(PoolWorkers, TakesTheReadyCallback) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Starting));
  contract::ReadyCallback callback;
  callback.worker_id = "worker-cpu-0";
  callback.uri = "http://127.0.0.1:8000";
  callback.model_ref = "m.gguf";
  callback.worker_type = "llorch-cpud";
  callback.version = "1";
  const std::string body = json::serialize(contract::to_json(callback));
  const std::string response = pool.ask(http::test::post(
      "/v2/internal/workers/ready", body, "X-Llorch-Worker-Mark: m4rk\r\nConnection: close\r\n"));
  EXPECT_EQ(status_of(response), 200);
  expect_fits("Ok", response);
  EXPECT_THAT(check_named(openapi_document(), "ReadyCallback", json::parse(body).value()),
              IsEmpty());
  EXPECT_THAT(pool.workers.calls(), ElementsAre("ready worker-cpu-0 m4rk"));
  EXPECT_EQ(status_of(pool.send("POST", "/v2/internal/workers/ready", "{}")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/internal/workers/ready", std::string(20'000, ' '))),
            413)
      << "strangers' bodies are not kept";
}

class PoolLogs : public ::testing::Test {
 protected:
  PoolLogs() {
    contract::PoolWorker worker = a_worker("w", PoolWorkerState::Ready);
    worker.log_file = (pool_.folder / "w.log").string();
    pool_.workers.put(worker);
  }
  void append(std::string_view text) {
    std::ofstream(pool_.folder / "w.log", std::ios::app) << text;
  }
  void end_worker() {
    contract::PoolWorker worker = a_worker("w", PoolWorkerState::Failed);
    worker.log_file = (pool_.folder / "w.log").string();
    pool_.workers.put(worker);
  }

  FakePool pool_{RouteSettings{.follow_interval = std::chrono::milliseconds(5)}};
};

TEST_F(PoolLogs, TheLastLines) {
  for (int i = 0; i < 300; ++i) append(fmt::format("line {}\n", i));
  append("cut");
  const std::string response = pool_.get("/v2/workers/w/logs?lines=3");
  EXPECT_EQ(status_of(response), 200);
  EXPECT_THAT(header_of(response, "Content-Type"), HasSubstr("text/plain"));
  EXPECT_EQ(body_of(response), "line 298\nline 299\ncut");
  EXPECT_THAT(body_of(pool_.get("/v2/workers/w/logs")), ::testing::StartsWith("line 201\n"));
  EXPECT_EQ(body_of(pool_.get("/v2/workers/w/logs?lines=0")), "");
}

TEST_F(PoolLogs, MistakesAreNamed) {
  append("x\n");
  EXPECT_THAT(failed_fields(pool_.get("/v2/workers/w/logs?lines=many&folow=true")),
              ElementsAre("lines", "folow"));
  EXPECT_THAT(failed_fields(pool_.get("/v2/workers/w/logs?lines=-1")), ElementsAre("lines"));
}

TEST_F(PoolLogs, FollowsThroughARotationToTheEnd) {
  append("one\ntwo\n");
  http::test::RawSocket socket(pool_.server->port());
  socket.send(http::test::get("/v2/workers/w/logs?lines=1&follow=true", "Connection: close\r\n"));
  std::string seen = socket.read_until("data: two\n");
  EXPECT_THAT(seen, ::testing::Not(HasSubstr("data: one")));
  append("three\nhal");
  socket.read_until("data: three\n");
  append("f\n");
  socket.read_until("data: half\n");
  std::filesystem::rename(pool_.folder / "w.log", pool_.folder / "w.log.1");
  append("four\n");
  socket.read_until("data: four\n");
  append("last words");
  end_worker();
  const std::string rest = socket.read_all();
  EXPECT_THAT(rest, AllOf(HasSubstr("data: last words\n"), HasSubstr("event: end"),
                          HasSubstr(R"({"state":"failed"})")));
}

TEST_F(PoolLogs, OnlySoManyFollow) {
  FakePool pool(RouteSettings{.follow_interval = std::chrono::milliseconds(5), .max_followers = 1});
  contract::PoolWorker worker = a_worker("w", PoolWorkerState::Ready);
  worker.log_file = (pool.folder / "w.log").string();
  pool.workers.put(worker);
  std::ofstream(pool.folder / "w.log") << "x\n";
  {
    http::test::RawSocket first(pool.server->port());
    first.send(http::test::get("/v2/workers/w/logs?follow=true"));
    first.read_until("data: x\n");
    const std::string second = pool.get("/v2/workers/w/logs?follow=true");
    EXPECT_EQ(status_of(second), 429);
    EXPECT_EQ(code_of(second), "QUEUE_FULL");
  }
  // The first has gone: its place is free again.
  EXPECT_TRUE(eventually([&] {
    http::test::RawSocket next(pool.server->port());
    next.send(http::test::get("/v2/workers/w/logs?follow=true"));
    return status_of(next.read_until("\r\n\r\n")) == 200;
  }));
}

TEST(PoolModels, RegisterShowUpdateRemove) {
  FakePool pool;
  const std::string created = register_model(pool);
  EXPECT_EQ(status_of(created), 201) << created;
  expect_fits("Model", created);
  EXPECT_EQ(json_of(created).at("architecture"), "gpt2");
  EXPECT_EQ(json_of(created).at("downloaded"), true);
  expect_fits("Model", pool.get("/v2/models/m"));
  expect_fits("ModelList", pool.get("/v2/models?known=true"));
  EXPECT_EQ(status_of(register_model(pool)), 409);

  const std::string updated = pool.send("PATCH", "/v2/models/m", R"({"name":"Mine"})");
  EXPECT_EQ(status_of(updated), 200) << updated;
  EXPECT_EQ(json_of(pool.get("/v2/models/m")).at("name"), "Mine");

  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 200);
  EXPECT_EQ(status_of(pool.get("/v2/models/m")), 404);
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 404);
}

TEST(PoolModels, KnownOnesAreShownWhenAskedFor) {
  FakePool pool;
  EXPECT_FALSE(json_of(pool.get("/v2/models")).get_object().contains("known"));
  EXPECT_THAT(body_of(pool.get("/v2/models?known=true")), HasSubstr("tinyllama"));
}

TEST(PoolModels, MistakesAreNamed) {
  FakePool pool;
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/models", R"({"id":"../x","size":3})")),
              ElementsAre("id", "size"));
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x","path":"/nowhere"})")), 404);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x"})")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x","repo":"nowhere"})")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"builtin"})")), 409);
  EXPECT_THAT(failed_fields(pool.send("PATCH", "/v2/models/m", R"({"id":"x"})")),
              ElementsAre("id"));
  EXPECT_THAT(failed_fields(pool.send("DELETE", "/v2/models/m?file=true")), ElementsAre("file"));
  EXPECT_THAT(failed_fields(pool.get("/v2/models?knwon=true")), ElementsAre("knwon"));
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/builtin")), 409);
}

TEST(PoolModels, OneInUseKeepsItsPlace) {
  FakePool pool;
  register_model(pool);
  pool.workers.put(a_worker("w", PoolWorkerState::Ready));
  const std::string removed = pool.send("DELETE", "/v2/models/m?files=true");
  EXPECT_EQ(status_of(removed), 409);
  EXPECT_THAT(message_of(removed), HasSubstr("stop"));
  EXPECT_EQ(status_of(pool.send("PATCH", "/v2/models/m", R"({"downloaded":false})")), 409);
  EXPECT_EQ(status_of(pool.send("PATCH", "/v2/models/m", R"({"name":"still"})")), 200);
  pool.workers.put(a_worker("w", PoolWorkerState::Stopped));
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m?files=true")), 200);
  EXPECT_TRUE(std::filesystem::exists(::llorch::test::source_path("tests/golden/gpt2_tiny")))
      << "files that are used in place stay";
}

TEST(PoolModels, FilesOfOurOwnGoWithTheModel) {
  FakePool pool;
  const std::filesystem::path ours = pool.home.models() / "m";
  std::filesystem::create_directories(pool.home.models());
  std::filesystem::copy(::llorch::test::source_path("tests/golden/gpt2_tiny"), ours,
                        std::filesystem::copy_options::recursive);
  const std::string body = fmt::format(R"({{"id":"m","path":"{}"}})", ours.string());
  ASSERT_EQ(status_of(pool.send("POST", "/v2/models", body)), 201);
  ASSERT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 200);
  EXPECT_TRUE(std::filesystem::exists(ours));
  ASSERT_EQ(status_of(pool.send("POST", "/v2/models", body)), 201);
  ASSERT_EQ(status_of(pool.send("DELETE", "/v2/models/m?files=true")), 200);
  EXPECT_FALSE(std::filesystem::exists(ours));
  EXPECT_TRUE(std::filesystem::exists(pool.home.models()));
}

TEST(PoolPlan, AsksForEveryDeviceThatIsHere) {
  FakePool pool;
  register_model(pool);
  test::Shared<std::vector<PlanRequest>> requests;
  pool.plan.change([&requests](auto& plan) {
    plan = [&requests](const contract::ModelEntry& model,
                       const PlanRequest& request) -> Result<std::vector<MemoryPlan>> {
      EXPECT_EQ(model.id, "m");
      requests.change([&](auto& all) { all.push_back(request); });
      MemoryPlan answer;
      answer.device = request.backend;
      return std::vector<MemoryPlan>{answer};
    };
  });
  pool.host.change([](auto& host) { host.gpus.emplace_back(); });
  std::string response = pool.get("/v2/models/m/plan?ctx=512&slots=2&kv=q8_0");
  EXPECT_EQ(status_of(response), 200) << response;
  std::vector<PlanRequest> asked = requests.get();
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].backend, "cpu");
  EXPECT_EQ(asked[1].backend, "cuda");
  EXPECT_EQ(asked[1].context, 512);
  EXPECT_EQ(asked[1].slots, 2);
  EXPECT_EQ(asked[1].kv_type, "q8_0");
  expect_fits("Plans", response);
  response = pool.get("/v2/models/m/plan?backend=cuda&gpu=0");
  asked = requests.get();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[2].gpu, 0);
  EXPECT_THAT(failed_fields(pool.get("/v2/models/m/plan?backend=tpu&ctx=0&kv=f64&x=1")),
              ElementsAre("backend", "ctx", "kv", "x"));
  EXPECT_EQ(status_of(pool.get("/v2/models/none/plan")), 404);
}

contract::DownloadEvent progress(std::int64_t done) {
  contract::DownloadEvent event;
  event.model = "m";
  event.bytes_done = done;
  event.bytes_total = 100;
  return event;
}

std::string id_of(std::string_view response) {
  return std::string(json::view(json_of(response).at("download_id").get_string()));
}

std::string start(FakePool& pool, const std::string& model) {
  return pool.send("POST", fmt::format("/v2/models/{}/download", model), R"({"ref":"hf:a/b"})");
}

TEST(PoolDownloads, TokensCannotForgeHeaders) {
  FakePool pool;
  for (const char* body :
       {R"({"neighbours":[{"url":"http://a:1","token":"secret\r\nX-Forged: 1"}]})",
        R"({"hf_token":"hf_secret\nX-Forged: 1"})"}) {
    const std::string refused = pool.send("POST", "/v2/models/builtin/download", body);
    EXPECT_EQ(status_of(refused), 400) << refused;
    EXPECT_THAT(refused, HasSubstr("printable ASCII"));
    EXPECT_THAT(refused, ::testing::Not(HasSubstr("secret")));
  }
}

TEST(PoolDownloads, StreamsProgressAndThenTheEnd) {
  FakePool pool;
  const std::string accepted = pool.send(
      "POST", "/v2/models/m/download",
      R"({"ref":"hf:a/b","neighbours":[{"url":"http://h:9200","token":"t"},{"url":"http://i:9200"}],
          "only_neighbours":true})");
  EXPECT_EQ(status_of(accepted), 202);
  expect_fits("DownloadAccepted", accepted);
  const std::string id = id_of(accepted);
  ASSERT_TRUE(pool.script.wait_until_begun());
  EXPECT_EQ(pool.download_requests.get()[0].id, "m");
  EXPECT_EQ(pool.download_requests.get()[0].ref, "hf:a/b");
  ASSERT_EQ(pool.download_requests.get()[0].neighbours.size(), 2U);
  EXPECT_EQ(pool.download_requests.get()[0].neighbours[0].token, "t");
  EXPECT_TRUE(pool.download_requests.get()[0].only_neighbours);

  http::test::RawSocket socket(pool.server->port());
  socket.send(http::test::get("/v2/downloads/" + id + "/events", "Connection: close\r\n"));
  socket.read_until("event: progress\n");
  pool.script.say(progress(10));
  socket.read_until("\"bytes_done\":10");
  contract::DownloadEvent note;
  note.kind = contract::DownloadEvent::Kind::Note;
  note.text = "http://h:9200 does not have it";
  pool.script.say(note);
  socket.read_until("does not have it");
  expect_fits("DownloadList", pool.get("/v2/downloads"));
  pool.script.say(progress(100));
  pool.script.succeed();
  const std::string rest = socket.read_all();
  EXPECT_THAT(rest, AllOf(HasSubstr("event: done"), HasSubstr(R"("downloaded":true)")));
  // Whoever comes later learns the same end, and nothing else but the notes.
  const std::vector<http::SseEvent> late = events_of(pool.get("/v2/downloads/" + id + "/events"));
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[0].event, "note");
  EXPECT_EQ(late[1].event, "done");
}

TEST(PoolDownloads, AFailureIsTheLastEvent) {
  FakePool pool;
  const std::string id = id_of(start(pool, "m"));
  pool.script.fail({ErrorCode::Forbidden, "the repository is gated: accept its licence"});
  const std::vector<http::SseEvent> events = events_of(pool.get("/v2/downloads/" + id + "/events"));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().event, "error");
  EXPECT_THAT(
      check_named(openapi_document(), "ErrorEvent", json::parse(events.back().data).value()),
      IsEmpty());
  EXPECT_THAT(events.back().data, HasSubstr("FORBIDDEN"));
  const std::string list = pool.get("/v2/downloads");
  expect_fits("DownloadList", list);
  EXPECT_EQ(json_of(list).at("downloads").at(0).at("state"), "failed");
}

// The disk is not memory: nobody shall be told to stop workers because of it.
TEST(PoolDownloads, AFullDiskIsNotAMatterOfMemory) {
  FakePool pool;
  const std::string id = id_of(start(pool, "m"));
  pool.script.fail({ErrorCode::OutOfMemory, "cannot write m.part: No space left on device"});
  const auto events = events_of(pool.get("/v2/downloads/" + id + "/events"));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().event, "error");
  const json::Value error = json::parse(events.back().data).value();
  EXPECT_EQ(error.at("code"), "UNAVAILABLE");
  EXPECT_EQ(error.at("retriable"), true);
  EXPECT_THAT(events.back().data, HasSubstr("No space left on device"));
}

TEST(PoolDownloads, WorkThatRunsOutOfMemoryFailsAloneAndTheNextRuns) {
  Downloads downloads(DownloadsOptions{});
  const auto end_of = [&downloads](std::string model, bool throws) {
    Downloads::Job job;
    job.kind = "download";
    job.model = std::move(model);
    job.work = [throws](const contract::OnDownloadEvent&, std::stop_token) {
      if (throws) throw std::bad_alloc();
      return Result<json::Object>(json::Object());
    };
    const std::string id = downloads.start(std::move(job)).value().status.id;
    for (;;) {
      for (const DownloadStatus& status : downloads.list())
        if (status.id == id && status.has_ended()) return status;
      std::this_thread::yield();
    }
  };
  const DownloadStatus failed = end_of("a", true);
  ASSERT_TRUE(failed.error);
  EXPECT_EQ(failed.error->code, ErrorCode::OutOfMemory);
  EXPECT_FALSE(end_of("b", false).error);
}

// A handler that throws is one failed request.
TEST(PoolRoutes, AHandlerThatRunsOutOfMemoryFailsItsRequestAlone) {
  FakePool pool;
  register_model(pool);
  pool.plan.change([](auto& plan) {
    plan = [](const contract::ModelEntry&, const PlanRequest&) -> Result<std::vector<MemoryPlan>> {
      throw std::bad_alloc();
    };
  });
  const std::string answer = pool.get("/v2/models/m/plan");
  EXPECT_EQ(status_of(answer), 503) << answer;
  EXPECT_EQ(code_of(answer), "INSUFFICIENT_MEMORY");
  EXPECT_EQ(status_of(pool.get("/health")), 200);
}

TEST(PoolDownloads, CancelEndsItAndIsIdempotent) {
  FakePool pool;
  const std::string id = id_of(start(pool, "m"));
  ASSERT_TRUE(pool.script.wait_until_begun());
  const std::string removal = pool.send("DELETE", "/v2/models/m");
  EXPECT_EQ(status_of(removal), 409) << "not while it is being fetched";
  for (int i = 0; i < 2; ++i) {
    const std::string cancelled = pool.send("DELETE", "/v2/downloads/" + id);
    EXPECT_EQ(status_of(cancelled), 202);
    expect_fits("Download", cancelled);
  }
  const std::vector<http::SseEvent> events = events_of(pool.get("/v2/downloads/" + id + "/events"));
  EXPECT_EQ(events.back().event, "error");
  EXPECT_THAT(events.back().data, HasSubstr("CANCELLED"));
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/downloads/none")), 404);
  EXPECT_EQ(status_of(pool.get("/v2/downloads/none")), 404);
  const std::string one = pool.get("/v2/downloads/" + id);
  expect_fits("Download", one);
  EXPECT_EQ(json_of(one).at("state"), "cancelled");
  EXPECT_EQ(status_of(pool.get("/v2/downloads/none/events")), 404);
}

// One that runs and one that waits: whoever watches hears the end when the manager stops.
TEST(PoolDownloads, AStoppingManagerIsTheLastEvent) {
  FakePool pool({}, {.max_running = 1});
  const std::string running = id_of(start(pool, "m"));
  ASSERT_TRUE(pool.script.wait_until_begun());
  const std::string waiting = id_of(start(pool, "n"));
  std::vector<std::unique_ptr<http::test::RawSocket>> sockets;
  for (const std::string& id : {running, waiting}) {
    sockets.push_back(std::make_unique<http::test::RawSocket>(pool.server->port()));
    sockets.back()->send(
        http::test::get("/v2/downloads/" + id + "/events", "Connection: close\r\n"));
    sockets.back()->read_until("event: progress\n");
  }
  pool.downloads.stop();
  for (const auto& socket : sockets) {
    const std::string rest = socket->read_all();
    EXPECT_THAT(rest, AllOf(HasSubstr("event: error"), HasSubstr("CANCELLED"),
                            HasSubstr("manager is stopping")));
  }
  EXPECT_EQ(status_of(start(pool, "o")), 503);
}

TEST(PoolDownloads, TheSameAgainJoinsAnotherConflicts) {
  FakePool pool;
  const std::string first = pool.send("POST", "/v2/models/m/download", R"({"ref":"hf:a/b"})");
  EXPECT_EQ(id_of(pool.send("POST", "/v2/models/m/download", R"({"ref":"hf:a/b"})")), id_of(first));
  const std::string other = pool.send("POST", "/v2/models/m/download", R"({"ref":"hf:c/d"})");
  EXPECT_EQ(status_of(other), 409);
  EXPECT_THAT(message_of(other), HasSubstr(id_of(first)));
}

TEST(PoolDownloads, WhatIsNoModelIsSaidAtOnce) {
  FakePool pool;
  const std::string unknown = pool.send("POST", "/v2/models/tinylama/download");
  EXPECT_EQ(status_of(unknown), 404);
  EXPECT_THAT(message_of(unknown), HasSubstr("tinyllama")) << "the nearest one";
  EXPECT_EQ(status_of(pool.send("POST", "/v2/downloads", R"({"id":"no-such-model"})")), 404);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models/m/download", R"({"ref":"ftp://x"})")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/downloads", R"({"ref":"hf:a"})")), 400);
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/downloads")), ElementsAre("ref"));
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/downloads", R"({"ref":"a/b","sha256":"x"})")),
              ElementsAre("sha256"));
  EXPECT_THAT(
      failed_fields(pool.send("POST", "/v2/downloads", R"({"ref":"a/b","connections":17})")),
      ElementsAre("connections"));
  EXPECT_EQ(json_of(pool.get("/v2/downloads")).at("downloads").get_array().size(), 0U);
}

TEST(PoolDownloads, TheNumberOfConnectionsIsTheUsers) {
  FakePool pool;
  const std::string accepted =
      pool.send("POST", "/v2/downloads", R"({"ref":"hf:a/b","connections":3})");
  EXPECT_EQ(status_of(accepted), 202) << accepted;
  ASSERT_TRUE(pool.script.wait_until_begun());
  EXPECT_EQ(pool.download_requests.get().at(0).max_connections, 3);
  pool.script.succeed();
}

TEST(PoolDownloads, AReferenceAloneGetsAnIdThatNobodyHas) {
  FakePool pool;
  const auto start_ref = [&](const std::string& ref) {
    return json_of(pool.send("POST", "/v2/downloads", fmt::format(R"({{"ref":"{}"}})", ref)));
  };
  const json::Value first = start_ref("hf:org/Repo");
  EXPECT_EQ(first.at("model"), "repo");
  EXPECT_EQ(first.at("joined"), false);
  const json::Value again = start_ref("org/Repo");
  EXPECT_EQ(again.at("download_id"), first.at("download_id"));
  EXPECT_EQ(again.at("joined"), true);
  EXPECT_EQ(start_ref("hf:org2/Repo").at("model"), "org2-repo");
  expect_fits("DownloadAccepted", pool.send("POST", "/v2/downloads",
                                            R"({"id":"mine","ref":"hf:org/Repo","sha256":")" +
                                                std::string(64, 'a') + R"("})"));
  const json::Value list = json_of(pool.get("/v2/downloads"));
  EXPECT_EQ(list.at("downloads").at(1).at("ref"), "hf:org2/Repo");
  EXPECT_EQ(list.at("downloads").at(2).at("model"), "mine");
}

TEST(PoolDownloads, AModelOfAnotherSourceIsNotReplaced) {
  FakePool pool;
  const std::string path = llorch::test::source_path("tests/golden/gpt2_tiny").string();
  ASSERT_EQ(
      status_of(pool.send("POST", "/v2/models",
                          fmt::format(R"({{"id":"m","repo":"hf:org/m","path":"{}"}})", path))),
      201);
  contract::PoolWorker worker = a_worker("w", PoolWorkerState::Busy);
  worker.model = "m";
  pool.workers.put(worker);
  const std::string refused = pool.send("POST", "/v2/models/m/download", R"({"ref":"hf:org2/m"})");
  EXPECT_EQ(status_of(refused), 409);
  EXPECT_THAT(message_of(refused), HasSubstr("hf:org/m"));
  EXPECT_EQ(json_of(pool.send("POST", "/v2/downloads", R"({"ref":"hf:org2/m"})")).at("model"),
            "org2-m");
  EXPECT_EQ(json::view(json_of(pool.get("/v2/models/m")).at("path").as_string()), path);
}

TEST(PoolDownloads, AFullQueueSaysSo) {
  FakePool pool({}, {.max_running = 1, .max_waiting = 1});
  const std::string running = start(pool, "a");
  ASSERT_TRUE(pool.script.wait_until_begun());
  const std::string waiting = start(pool, "b");
  EXPECT_EQ(status_of(waiting), 202);
  EXPECT_EQ(json_of(waiting).at("state"), "queued");
  const std::string refused = start(pool, "c");
  EXPECT_EQ(status_of(refused), 429);
  EXPECT_EQ(code_of(refused), "QUEUE_FULL");
  EXPECT_EQ(header_of(refused, "Retry-After"), "1");
  // One that waits is cancelled at once and leaves its place.
  EXPECT_EQ(json_of(pool.send("DELETE", "/v2/downloads/" + id_of(waiting))).at("state"),
            "cancelled");
  EXPECT_EQ(status_of(start(pool, "c")), 202);
}

TEST(PoolDownloads, MistakesAreNamed) {
  FakePool pool;
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/models/m/download",
                                      R"({"neighbours":[{"token":"t","x":1},7],"y":2})")),
              ::testing::UnorderedElementsAre("neighbours[0].url", "neighbours[0].x",
                                              "neighbours[1]", "y"));
  EXPECT_THAT(
      failed_fields(pool.send("POST", "/v2/models/m/download", R"({"only_neighbours":true})")),
      ElementsAre("only_neighbours"));
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models/..%2Fx/download")), 400);
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/models/m/verify", R"({"repare":true})")),
              ElementsAre("repare"));
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models/none/verify")), 404);
}

TEST(PoolDownloads, VerifyReportsWhatItFound) {
  FakePool pool;
  register_model(pool);
  pool.report.change([](catalog::VerifyReport& report) {
    report.model = "m";
    report.bytes_checked = 42;
    catalog::Damage damage;
    damage.file = "b";
    damage.repaired = true;
    damage.from = "http://h:9200";
    report.damages.push_back(damage);
  });
  const std::string accepted = pool.send("POST", "/v2/models/m/verify", R"({"repair":true})");
  EXPECT_EQ(status_of(accepted), 202) << accepted;
  pool.script.succeed();
  const auto events = events_of(pool.get("/v2/downloads/" + id_of(accepted) + "/events"));
  ASSERT_EQ(events.back().event, "done");
  const json::Value report = json::parse(events.back().data).value();
  EXPECT_EQ(report.at("bytes_checked"), 42);
  EXPECT_THAT(events.back().data, HasSubstr("http://h:9200"));
  EXPECT_TRUE(pool.verify_requests.get()[0].repair);
}

TEST(PoolDownloads, OldEndsAreForgottenInTheEnd) {
  FakePool pool({}, {.max_running = 1, .max_waiting = 8, .max_ended = 2});
  pool.script.succeed();
  std::vector<std::string> ids;
  for (const char* model : {"a", "b", "c", "d", "e"}) {
    ids.push_back(id_of(start(pool, model)));
    events_of(pool.get("/v2/downloads/" + ids.back() + "/events"));
  }
  EXPECT_EQ(status_of(pool.get("/v2/downloads/" + ids[0] + "/events")), 404);
  EXPECT_EQ(status_of(pool.get("/v2/downloads/" + ids[4] + "/events")), 200);
}

TEST(PoolShutdown, IsAskedFor) {
  FakePool pool;
  const std::string response = pool.send("POST", "/v2/shutdown");
  EXPECT_EQ(status_of(response), 202);
  expect_fits("ShutdownAnswer", response);
  EXPECT_TRUE(pool.shutdown_requested);
}

TEST(PoolMetrics, AreWellFormed) {
  FakePool pool;
  contract::PoolWorker worker = a_worker("w", PoolWorkerState::Busy);
  worker.memory_bytes = 77;
  worker.tokens_per_second = 2.5;
  pool.workers.put(worker);
  pool.script.say(progress(10));
  pool.script.say(progress(60));
  pool.script.succeed();
  const std::string id = id_of(start(pool, "m"));
  events_of(pool.get("/v2/downloads/" + id + "/events"));
  const std::string page = body_of(pool.get("/metrics"));
  for (const char* line :
       {"llorch_pool_workers{state=\"busy\"} 1\n", "llorch_pool_workers{state=\"failed\"} 0\n",
        "llorch_pool_workers_memory_bytes 77\n", "llorch_pool_tokens_per_second 2.5\n",
        "llorch_pool_downloads_total{outcome=\"done\"} 1\n",
        "llorch_pool_downloaded_bytes_total 50\n", "llorch_pool_models 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

std::string pattern_of(const http::Router::Route& route) {
  std::string path;
  for (const auto& segment : route.segments)
    path += segment.is_param ? "/{" + segment.text + "}" : "/" + segment.text;
  return path;
}

std::set<std::string> served_routes(const http::Router& router) {
  std::set<std::string> served;
  for (const http::Router::Route& route : router.routes())
    served.insert(fmt::format("{} {}", http::method_name(route.method), pattern_of(route)));
  return served;
}

http::Router router_of(FakePool& pool) {
  return make_router({.home = pool.home,
                      .workers = pool.workers,
                      .downloads = pool.downloads,
                      .threads = pool.threads,
                      .host = nullptr,
                      .plan = nullptr,
                      .download = nullptr,
                      .verify = nullptr,
                      .adopt = nullptr,
                      .request_shutdown = nullptr,
                      .phase = nullptr});
}

TEST(PoolOpenApi, HasEveryRouteAndNoOther) {
  FakePool pool;
  std::set<std::string> documented;
  const json::Object document = openapi_document();
  for (const auto& path : document.at("paths").get_object()) {
    for (const auto& operation : path.value().get_object()) {
      std::string method(json::view(operation.key()));
      for (char& c : method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      documented.insert(fmt::format("{} {}", method, json::view(path.key())));
    }
  }
  EXPECT_EQ(served_routes(router_of(pool)), documented);
  expect_fits("Document", pool.get("/openapi.json"));
}

// docs/api_pool.md has a heading for each route: "### POST /v2/workers/start".
TEST(PoolDocs, HaveEveryRouteAndNoOther) {
  FakePool pool;
  std::ifstream file(::llorch::test::source_path("docs/api_pool.md"));
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ") && line.find(" /") != std::string::npos)
      documented.insert(line.substr(4));
  }
  EXPECT_EQ(served_routes(router_of(pool)), documented);
}

// Every body that a schema describes is known to its parser, and nothing more: a field that is in
// no schema is refused, one that is in it is not "unknown".
TEST(PoolOpenApi, BodiesAreThoseOfTheParsers) {
  FakePool pool;
  register_model(pool);
  pool.workers.put(a_worker("w", PoolWorkerState::Ready));
  const json::Object document = openapi_document();
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.request_schema.empty() || endpoint.request_schema == "ReadyCallback") continue;
    json::Object body{{"surely_unknown", 1}};
    const json::Value& schema = document.at("components").at("schemas").at(endpoint.request_schema);
    for (const auto& property : schema.at("properties").get_object())
      body[property.key()] = json::Array{json::Array()};  // wrong for every type there is
    std::string path(endpoint.path);
    if (const std::size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "m");
    const std::string response =
        pool.send(http::method_name(endpoint.method), path, json::serialize(body));
    EXPECT_EQ(status_of(response), 400) << path;
    std::set<std::string> unknown;
    const json::Value answer = json_of(response);
    for (const json::Value& error : answer.at("error").at("errors").get_array()) {
      if (error.at("constraint") == "known field")
        unknown.emplace(json::view(error.at("field").get_string()));
    }
    EXPECT_EQ(unknown, std::set<std::string>{"surely_unknown"}) << path << response;
  }
}

TEST(PoolOpenApi, QueriesAreThoseOfTheParsers) {
  FakePool pool;
  register_model(pool);
  contract::PoolWorker worker = a_worker("m", PoolWorkerState::Ready);
  pool.workers.put(worker);
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.query.empty()) continue;
    std::string path(endpoint.path);
    if (const std::size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "m");
    path += "?surely_unknown=1";
    const json::Value query = json::parse(endpoint.query).value();
    for (const auto& parameter : query.get_object())
      path += fmt::format("&{}=wrong", json::view(parameter.key()));
    const std::string response = pool.send(http::method_name(endpoint.method), path);
    EXPECT_EQ(status_of(response), 400) << path;
    EXPECT_EQ(failed_fields(response).size(), query.get_object().size() + 1) << path << response;
    EXPECT_THAT(failed_fields(response), Contains("surely_unknown"));
  }
}

TEST(PoolCallbackServer, AnswersNothingElse) {
  FakePool pool;
  const http::Router router = make_callback_router(pool.workers, pool.threads);
  EXPECT_THAT(served_routes(router), ElementsAre("POST /v2/internal/workers/ready"));
}

}  // namespace
}  // namespace llorch::pool
