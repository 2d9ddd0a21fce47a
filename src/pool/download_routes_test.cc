#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

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

}  // namespace
}  // namespace llorch::pool
