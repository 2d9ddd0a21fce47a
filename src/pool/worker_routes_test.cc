#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

TEST(PoolWorkers, StartsWhatWasAskedFor) {
  FakePool pool;
  const std::string response =
      pool.send("POST", "/v2/workers/start",
                R"({"backend":"cuda","model":"m","gpu":1,"ctx":4096,"slots":3,"kv":"q8_0",
                    "chat_template":"chatml","on_demand":true})");
  EXPECT_EQ(status_of(response), 202);
  expect_fits("Worker", response);
  EXPECT_EQ(json_of(response).at("state"), "starting");
  const contract::StartWorkerRequest asked = pool.workers.last_start();
  EXPECT_EQ(asked.backend, "cuda");
  EXPECT_EQ(asked.gpu, 1);
  EXPECT_EQ(asked.context, 4096);
  EXPECT_EQ(asked.slots, 3);
  EXPECT_EQ(asked.kv_type, "q8_0");
  EXPECT_EQ(asked.chat_template, "chatml");
  EXPECT_TRUE(asked.on_demand);
}

TEST(PoolWorkers, EveryFailureOfARequestAtOnce) {
  FakePool pool;
  const std::string response = pool.send("POST", "/v2/workers/start",
                                         R"({"backend":"gpu","ctx":0,"surprise":1,"kv":"f32",
                                             "chat_template":"my/own"})");
  EXPECT_EQ(status_of(response), 400);
  EXPECT_EQ(code_of(response), "INVALID_REQUEST");
  EXPECT_THAT(failed_fields(response),
              ::testing::UnorderedElementsAre("backend", "model", "ctx", "kv", "chat_template",
                                              "surprise"));
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

}  // namespace
}  // namespace llorch::pool
