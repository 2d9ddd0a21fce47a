#include "pool/pool_manager_fixture.h"

namespace llorch::pool {
namespace {

TEST_F(PoolManagerTest, AWorkerStartsServesAndStops) {
  const Result<PoolWorker> worker = pool_.start_worker("ok,load=100");
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  EXPECT_EQ(worker->id, "worker-cpu-0");
  EXPECT_EQ(worker->state, PoolWorkerState::Starting);
  EXPECT_EQ(worker->model, "ok,load=100");
  EXPECT_EQ(worker->context, 2048);
  EXPECT_TRUE(pool_.manager().uses_model("ok,load=100"));
  ASSERT_TRUE(pool_.wait_for(worker->id, PoolWorkerState::Ready));
  ASSERT_TRUE(eventually([&] { return pool_.worker(worker->id).memory_peak_bytes > 0; }));
  const PoolWorker ready = pool_.worker(worker->id);
  EXPECT_THAT(ready.uri, HasSubstr("http://127.0.0.1:"));
  EXPECT_FALSE(ready.ready_at.empty());
  EXPECT_EQ(ready.load_progress, 1.0);
  EXPECT_GT(ready.pid, 0);
  EXPECT_GT(ready.memory_bytes, 0);
  EXPECT_NE(::getpgid(static_cast<pid_t>(ready.pid)), ::getpgid(0)) << "not a group of its own";
  const Result<http::Response> health =
      http::Client().send({http::Method::Get, ready.uri + "/health"});
  ASSERT_TRUE(health.ok());
  EXPECT_EQ(health->status, 200);

  const PoolWorker end = stopped(worker->id);
  EXPECT_EQ(end.state, PoolWorkerState::Stopped);
  EXPECT_EQ(end.category, ExitCategory::Stopped);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_FALSE(end.ended_at.empty());
  EXPECT_EQ(end.memory_bytes, 0);
  EXPECT_FALSE(pool_.manager().uses_model("ok,load=100"));
  EXPECT_THAT(files(), IsEmpty()) << "nothing is left of it but its log";
  EXPECT_TRUE(pool_.manager().stop_worker(worker->id).ok());
  EXPECT_EQ(pool_.manager().worker(worker->id).error().code, ErrorCode::NotFound) << "forgotten";
  EXPECT_EQ(pool_.manager().stop_worker(worker->id).error().code, ErrorCode::NotFound);
}

TEST_F(PoolManagerTest, AStoppedWorkerLeavesTheListAndItsLogStays) {
  EXPECT_EQ(PoolTiming{}.stopped_shown, std::chrono::minutes(10));
  pool_.options.timing.stopped_shown = milliseconds(100);
  pool_.start();
  const std::string id = pool_.ready_worker("ok");
  ASSERT_TRUE(pool_.manager().stop_worker(id).ok());
  EXPECT_TRUE(eventually([&] { return !pool_.manager().worker(id).ok(); }));
  EXPECT_TRUE(find_log_of(pool_.options.home, id));
}

TEST_F(PoolManagerTest, SaysWhyAModelCannotStart) {
  const std::string id = started("fail");
  const PoolWorker worker = failed(id);
  EXPECT_EQ(worker.category, ExitCategory::StartFailed);
  EXPECT_THAT(worker.reason, AllOf(HasSubstr("exited with code 1 before it was ready"),
                                   HasSubstr("no.gguf does not exist")));
  EXPECT_EQ(worker.exit_code, 1);
  EXPECT_THAT(worker.last_log_lines, Contains(HasSubstr("some log line")));
  EXPECT_TRUE(pool_.manager().stop_worker(id).ok());
  EXPECT_THAT(pool_.manager().workers(), IsEmpty()) << "forgotten";
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(PoolManagerTest, ASignalBeforeItIsReadyIsAFailedStart) {
  const PoolWorker worker = failed(started("ok,die=11"));
  EXPECT_EQ(worker.category, ExitCategory::StartFailed);
  EXPECT_EQ(worker.exit_signal, SIGSEGV);
}

TEST_F(PoolManagerTest, AnExitNobodyAskedForIsACrash) {
  const PoolWorker worker = failed(started("ok,exit-later=50"));
  EXPECT_EQ(worker.category, ExitCategory::Crash);
  EXPECT_EQ(worker.exit_code, 3);
  EXPECT_THAT(worker.reason, HasSubstr("had enough"));
}

TEST_F(PoolManagerTest, AKilledWorkerIsACrashWithItsLastLines) {
  const std::string id = pool_.ready_worker("ok,lines=30");
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).pid > 0; }));
  ::kill(static_cast<pid_t>(pool_.worker(id).pid), SIGKILL);
  const PoolWorker worker = failed(id);
  EXPECT_EQ(worker.category, ExitCategory::Crash);
  EXPECT_EQ(worker.exit_signal, SIGKILL);
  EXPECT_EQ(worker.last_log_lines.size(), 20U);
  EXPECT_THAT(worker.last_log_lines, Contains(std::string("line 29")));
}

TEST_F(PoolManagerTest, AKilledKeeperTakesItsWorkerAlong) {
  const std::string id = pool_.ready_worker("ok,grandchild");
  const Result<WorkerRecord> record = read_record(record_file(pool_.options.home, id));
  ASSERT_TRUE(record.ok());
  ::kill(record->keeper.pid, SIGKILL);
  const PoolWorker worker = failed(id);
  EXPECT_EQ(worker.category, ExitCategory::Crash);
  EXPECT_THAT(worker.reason, HasSubstr("its keeper was killed"));
  EXPECT_THAT(test::processes_naming(pool_.root().string()), IsEmpty())
      << "the worker or what it started";
}

TEST_F(PoolManagerTest, AWorkerThatIsNotReadyInTimeIsEnded) {
  pool_.options.timing.ready_base = milliseconds(1'000);
  pool_.start();
  const PoolWorker worker = failed(started("mute"));
  EXPECT_EQ(worker.category, ExitCategory::Timeout);
  EXPECT_EQ(worker.exit_signal, SIGTERM);
}

TEST_F(PoolManagerTest, TheDeadlineFollowsTheSizeOfTheFile) {
  pool_.options.timing.ready_base = milliseconds(50);
  pool_.options.timing.ready_bytes_per_second = 0.5;  // 7 bytes: 14 s
  pool_.start();
  EXPECT_NE(pool_.ready_worker("ok,load=400"), "");
}

TEST_F(PoolManagerTest, AWorkerThatStopsAnsweringHangs) {
  pool_.options.timing.health_timeout = milliseconds(100);
  pool_.start();
  const PoolWorker worker = failed(started("ok,hang"));
  EXPECT_EQ(worker.category, ExitCategory::Hang);
  EXPECT_THAT(worker.reason, HasSubstr("answered no health check 3 times in a row"));
  EXPECT_EQ(worker.exit_signal, SIGKILL);
}

TEST_F(PoolManagerTest, AWorkerWithWorkAndNoTokenHangs) {
  pool_.options.timing.token_patience = milliseconds(1'000);
  pool_.start();
  const std::string id = started("ok,stall");
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).state == PoolWorkerState::Busy; }));
  const PoolWorker worker = failed(id);
  EXPECT_EQ(worker.category, ExitCategory::Hang);
  EXPECT_THAT(worker.reason, HasSubstr("made no token"));
}

TEST_F(PoolManagerTest, AnIdleWorkerThatMakesNoTokenHangs) {
  pool_.options.timing.idle_probe = milliseconds(100);
  pool_.options.timing.token_patience = milliseconds(100);
  pool_.start();
  const std::string good = pool_.ready_worker("ok");
  const PoolWorker worker = failed(started("ok,no-token"));
  EXPECT_EQ(worker.category, ExitCategory::Hang);
  EXPECT_THAT(worker.reason, HasSubstr("when it was asked for one"));
  EXPECT_EQ(pool_.worker(good).state, PoolWorkerState::Ready) << pool_.worker(good).reason;
}

TEST_F(PoolManagerTest, AnUnhealthyWorkerIsEnded) {
  const PoolWorker worker = failed(started("ok,unhealthy"));
  EXPECT_EQ(worker.category, ExitCategory::Hang);
  EXPECT_THAT(worker.reason, HasSubstr("the engine stopped"));
}

TEST_F(PoolManagerTest, StopsAWorkerThatIgnoresEverything) {
  pool_.options.timing.drain_patience = milliseconds(50);
  pool_.options.timing.term_patience = milliseconds(50);
  pool_.start();
  const std::string id = pool_.ready_worker("ok,ignore-shutdown,ignore-term,grandchild");
  const PoolWorker worker = stopped(id);
  EXPECT_EQ(worker.state, PoolWorkerState::Stopped);
  EXPECT_EQ(worker.exit_signal, SIGKILL);
  EXPECT_THAT(worker.reason, HasSubstr("was killed"));
}

TEST_F(PoolManagerTest, StopsAWorkerThatStillLoads) {
  const std::string id = started("ok,load=60000");
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).load_progress > 0; }));
  EXPECT_EQ(pool_.worker(id).load_progress, 0.5);
  const PoolWorker worker = stopped(id);
  EXPECT_EQ(worker.category, ExitCategory::Stopped);
  // And one that does not listen yet: no use in waiting for it to finish anything.
  pool_.options.timing.drain_patience = std::chrono::hours(1);
  pool_.start();
  EXPECT_EQ(stopped(started("ok,listen=60000")).category, ExitCategory::Stopped);
}

TEST_F(PoolManagerTest, RestartsUnderTheSameId) {
  const std::string id = pool_.ready_worker("ok");
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).pid > 0; }));
  const std::int64_t before = pool_.worker(id).pid;
  const Result<PoolWorker> restarted = pool_.manager().restart_worker(id);
  ASSERT_TRUE(restarted.ok());
  EXPECT_EQ(restarted->state, PoolWorkerState::Draining);
  ASSERT_TRUE(eventually([&] {
    const PoolWorker worker = pool_.worker(id);
    return worker.state == PoolWorkerState::Ready && worker.pid > 0 && worker.pid != before;
  }));
  EXPECT_EQ(pool_.manager().workers().size(), 1U);

  const std::string failing = started("fail");
  failed(failing);
  ASSERT_TRUE(pool_.manager().restart_worker(failing).ok());
  std::filesystem::remove(pool_.root() / "models/fail");
  failed(failing);
  ASSERT_TRUE(pool_.manager().restart_worker(failing).ok());
  ASSERT_TRUE(eventually([&] {
    return pool_.worker(failing).reason.find("no model \"fail\"") != std::string::npos;
  })) << pool_.worker(failing).reason;
  EXPECT_EQ(pool_.worker(failing).category, ExitCategory::StartFailed);
  EXPECT_EQ(pool_.manager().restart_worker("worker-cpu-9").error().code, ErrorCode::NotFound);
}

TEST_F(PoolManagerTest, AGpusMemoryIsSeenBackBeforeAWorkerHasStopped) {
  std::atomic<std::int64_t> vram = 100 * kMiB;
  pool_.options.timing.reclaim_patience = milliseconds(10'000);
  pool_.options.sources->vram_of_process = [&vram](std::int32_t gpu, std::int64_t) {
    EXPECT_EQ(gpu, 0);
    return vram.load();
  };
  pool_.start();
  const Result<PoolWorker> worker = pool_.start_worker("ok", "cuda");
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  EXPECT_EQ(worker->id, "worker-cuda-0");
  EXPECT_EQ(worker->gpu, 0);
  ASSERT_TRUE(pool_.wait_for(worker->id, PoolWorkerState::Ready));
  ASSERT_TRUE(eventually([&] { return pool_.worker(worker->id).vram_bytes == 100 * kMiB; }));
  ASSERT_TRUE(pool_.manager().stop_worker(worker->id).ok());
  ASSERT_TRUE(eventually([&] { return test::processes_naming(pool_.root().string()).empty(); }));
  EXPECT_EQ(pool_.worker(worker->id).state, PoolWorkerState::Draining) << "the memory is not back";
  vram = 0;
  EXPECT_TRUE(pool_.wait_for(worker->id, PoolWorkerState::Stopped));
}

TEST_F(PoolManagerTest, StopAllEndsEveryWorkerAndTakesNoMore) {
  for (int i = 0; i < 3; ++i) started("ok");
  std::vector<int> progress;
  pool_.manager().stop_all([&](int running) { progress.push_back(running); });
  EXPECT_EQ(progress.back(), 0);
  EXPECT_THAT(test::processes_naming(pool_.root().string()), IsEmpty());
  EXPECT_EQ(pool_.start_worker("ok").error().code, ErrorCode::Unavailable);
}

TEST_F(PoolManagerTest, BoundsTheLog) {
  pool_.options.log_bytes_max = 1000;
  pool_.start();
  const std::string id = pool_.ready_worker("ok,lines=1000");
  ASSERT_TRUE(eventually([&] { return pool_.log(id).find("line 999\n") != std::string::npos; }));
  EXPECT_LE(std::filesystem::file_size(pool_.options.home.logs() / (id + ".log")), 1000U);
  EXPECT_TRUE(std::filesystem::exists(pool_.options.home.logs() / (id + ".log.3")));
}

TEST_F(PoolManagerTest, AConfinedWorkerReachesNothingElse) {
  const test::CallbackServer other;  // a service of the user's
  const std::string url = other.url();
  const std::size_t colon = url.rfind(':');
  const std::string port = url.substr(colon + 1, url.find('/', colon) - colon - 1);
  std::ofstream(pool_.root() / "token") << "a key of the user's";
  pool_.options.environment = [text = pool_.root().string()](const char* name) -> const char* {
    return std::string_view(name) == "HOME" ? text.c_str() : nullptr;
  };
  pool_.start();
  const std::string id = pool_.ready_worker("ok,pry=" + port);
  const std::string log = pool_.log(id);
  if (log.find("by landlock") == std::string::npos)
    GTEST_SKIP() << "this kernel has no landlock: " << log;
  for (const char* what : {"home", "tmp", "passwd", "token", "shell", "udp", "local socket"})
    EXPECT_THAT(log, HasSubstr(fmt::format("pry: {} failed: Permission denied", what)));
  EXPECT_THAT(log, HasSubstr("pry: ptrace failed: Operation not permitted"));
  EXPECT_THAT(log, HasSubstr("pry: null worked"));
  EXPECT_FALSE(std::filesystem::exists(pool_.root() / "pried"));
  if (log.find("files and ports") != std::string::npos)
    EXPECT_THAT(log, HasSubstr("pry: connect failed: Permission denied"));
  else
    EXPECT_THAT(log, HasSubstr("ports not (landlock ABI 4 is needed)"));
}

// A library that this program runs with, by the name that programs ask for: "libfmt.so.9".
std::filesystem::path loaded_library(std::string_view name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path != std::string::npos && line.find(name, path) != std::string::npos)
      return line.substr(path);
  }
  return {};
}

TEST_F(PoolManagerTest, AWorkerFindsLibrariesWhereTheUserSays) {
  const std::filesystem::path library = loaded_library("libfmt.so.");
  if (library.empty()) GTEST_SKIP() << "this build has no library of its own to move";
  const std::string name = library.filename().string();
  const std::filesystem::path folder = pool_.root() / "libraries";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(library,
                             folder / name.substr(0, name.find('.', name.find(".so.") + 4)));
  pool_.options.environment = [text = folder.string()](const char* variable) -> const char* {
    return std::string_view(variable) == "LD_LIBRARY_PATH" ? text.c_str() : nullptr;
  };
  pool_.start();
  const std::string id = pool_.ready_worker("ok");
  std::ifstream maps(fmt::format("/proc/{}/maps", pool_.worker(id).pid));
  const std::string mapped{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(mapped, HasSubstr(folder.string()));
  stopped(id);
}

// Nothing made up: this host's catalog and memory, the real worker's own plan, and its confinement.
TEST_F(PoolManagerTest, TheRealWorkerTellsAStoryInItsConfinement) {
  pool_.options.planner.worker_cpu = LLORCH_CPUD;
  pool_.options.planner.measurements_file = pool_.root() / "measurements.json";
  pool_.options.sources.reset();
  pool_.options.timing = {};
  pool_.start();
  const Result<PoolWorker> started =
      pool_.manager().start_worker({.backend = "cpu", .model = "builtin", .slots = 1});
  ASSERT_TRUE(started.ok()) << started.error().message;
  const std::string& id = started->id;
  EXPECT_GT(started->planned.weights_bytes, 0);
  ASSERT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
  EXPECT_THAT(pool_.log(id), Not(HasSubstr("not confined")));
  EXPECT_TRUE(eventually([&] {
    return std::filesystem::exists(pool_.options.planner.measurements_file);
  })) << "its peak was not kept";
  http::ClientRequest request(http::Method::Post, pool_.worker(id).uri + "/execute");
  request.headers.add("Content-Type", "application/json");
  request.body =
      R"({"job_id":"story","prompt":"Once upon a time","max_tokens":8,"temperature":0,"seed":1})";
  const Result<http::Response> story = http::Client().send(request);
  ASSERT_TRUE(story.ok()) << story.error().message;
  EXPECT_THAT(story->body, AllOf(HasSubstr("event: token"), HasSubstr("event: end")));
  const PoolWorker end = stopped(id);
  EXPECT_EQ(end.state, PoolWorkerState::Stopped) << end.reason;
}

}  // namespace
}  // namespace llorch::pool
