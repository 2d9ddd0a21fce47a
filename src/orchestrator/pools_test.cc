// Pools against a scripted manager.
#include "orchestrator/pools.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/answers.h"
#include "base/mutex.h"
#include "contract/download_event.h"
#include "http/server.h"
#include "http/sse.h"
#include "job_store/sqlite_store.h"
#include "support/test_paths.h"

namespace llorch::orchestrator {
namespace {

constexpr std::chrono::seconds kPatience{60};
const std::string kHash(32, 'a');

// A manager with one model. Its workers are ready as soon as they are asked for, or fail.
class ScriptedPool {
 public:
  ScriptedPool() {
    describe();
    http::Router router;
    router.add(http::Method::Get, "/v2/state", [this](const http::Request&) {
      const base::MutexLock lock(mutex_);
      json::Object state = contract::to_json(state_);
      if (fetches) {
        state["downloads"] =
            json::Array{json::Object{{"kind", "download"}, {"model", "big"}, {"state", "running"}}};
      }
      return Result<http::Response>(api::json_response(200, state));
    });
    router.add(http::Method::Post, "/v2/workers/start",
               [this](const http::Request& request) { return start_worker(request); });
    router.add(http::Method::Get, "/v2/workers/{id}", [this](const http::Request& request) {
      const base::MutexLock lock(mutex_);
      for (const contract::PoolWorker& worker : state_.workers) {
        if (worker.id == request.path_params.at("id"))
          return Result<http::Response>(api::json_response(200, contract::to_json(worker)));
      }
      return Result<http::Response>(Error{ErrorCode::NotFound, "no such worker"});
    });
    router.add(http::Method::Post, "/v2/models/{id}/download", [this](const http::Request&) {
      const base::MutexLock lock(mutex_);
      state_.models.front().downloaded = true;
      return Result<http::Response>(api::json_response(202, {{"download_id", "d-1"}}));
    });
    router.add(http::Method::Get, "/v2/downloads/d-1/events", [](const http::Request&) {
      contract::DownloadEvent progress;
      progress.model = "tiny";
      progress.bytes_done = 25;
      progress.bytes_total = 100;
      return Result<http::Response>(http::Response(
          200, std::string(http::kEventStreamType),
          http::format_event("progress", json::serialize(contract::to_json(progress))) +
              http::format_event("done", "{}")));
    });
    http::ServerOptions options;
    options.render_error = api::render_error;
    server_ = http::Server::start(std::move(router), options).take();
  }
  PoolAddress address() const {
    return {"http://127.0.0.1:" + std::to_string(server_->port()), ""};
  }

  // It is not on the disk: it has to be fetched first.
  void lack_model() {
    const base::MutexLock lock(mutex_);
    state_.models.front().downloaded = false;
    state_.models.front().missing_bytes = 100;
  }

  void take_on_demand() {
    const base::MutexLock lock(mutex_);
    state_.features = {std::string(contract::kFeatureOnDemand)};
  }
  std::string last_start() {
    const base::MutexLock lock(mutex_);
    return last_start_;
  }

  void stop() { server_->stop(); }

  // As `llorch-pool worker spawn` and `worker stop` there.
  void spawn(const std::string& id) {
    const base::MutexLock lock(mutex_);
    contract::PoolWorker worker;
    worker.id = id;
    worker.backend = "cpu";
    worker.model = "tiny";
    worker.start = 7;
    worker.state = contract::PoolWorkerState::Ready;
    state_.workers.push_back(worker);
  }
  void remove(const std::string& id) {
    const base::MutexLock lock(mutex_);
    std::erase_if(state_.workers, [&](const auto& worker) { return worker.id == id; });
  }

  std::atomic<bool> fetches = false;  // somebody downloads a model with llorch-pool
  std::atomic<bool> fails = false;
  std::atomic<int> plans_killed = 0;  // so many starts are still 503

 private:
  void describe() {
    const base::MutexLock lock(mutex_);
    state_.pool_id = "scripted";
    state_.host.disk_free_bytes = std::int64_t{1} << 30;
    contract::PoolDevice cpu;
    cpu.backend = "cpu";
    cpu.total_bytes = cpu.free_bytes = std::int64_t{1} << 30;
    state_.devices = {cpu};
    contract::PoolModel model;
    model.id = "tiny";
    model.model_hash = kHash;
    model.downloaded = true;
    model.backends = {"cpu"};
    model.need_bytes = 100;
    state_.models = {model};
  }
  Result<http::Response> start_worker(const http::Request& request) {
    const base::MutexLock lock(mutex_);
    last_start_ = request.body;
    if (plans_killed > 0) {
      --plans_killed;
      return Result<http::Response>(Error{ErrorCode::Unavailable, "the planner was killed"});
    }
    contract::PoolWorker worker;
    worker.id = "worker-cpu-" + std::to_string(state_.workers.size());
    worker.backend = "cpu";
    worker.model = "tiny";
    worker.model_hash = kHash;
    worker.start = 1;
    worker.slots = 2;
    worker.build = "b1";
    worker.state = fails ? contract::PoolWorkerState::Failed : contract::PoolWorkerState::Ready;
    if (fails) worker.category = contract::ExitCategory::StartFailed;
    if (fails) worker.reason = "its weights are cursed";
    state_.workers.push_back(worker);
    return Result<http::Response>(api::json_response(202, contract::to_json(worker)));
  }

  base::Mutex mutex_;
  contract::PoolState state_ LLORCH_GUARDED_BY(mutex_);
  std::string last_start_ LLORCH_GUARDED_BY(mutex_);
  std::unique_ptr<http::Server> server_;  // last: it ends before what its handlers look at
};

class NoAttempts final : public Attempts, public Answers {
 public:
  void open(AttemptRequest) override { ++attempts; }
  void cut(const fleet::AttemptId&) override {}
  void open(const fleet::JobId&, const fleet::SubmittedRecord&, const fleet::Position&) override {}
  void drop(const fleet::JobId&) override {}
  void tell(const fleet::JobId&, const fleet::JobNotice& notice) override {
    const base::MutexLock lock(mutex);
    if (notice.kind == fleet::NoticeKind::Ended) end = notice.end;
    if (notice.stage == "fetching") fetched = notice.progress;
  }
  void note_written(const std::vector<job_store::AnswerWritten>&) override {}

  std::atomic<int> attempts = 0;
  base::Mutex mutex;
  std::optional<fleet::EndedRecord> end LLORCH_GUARDED_BY(mutex);
  double fetched LLORCH_GUARDED_BY(mutex) = -1;
};

class PoolsTest : public ::testing::Test {
 protected:
  PoolsTest() {
    store = job_store::open_sqlite_store({.file = folder / "db"}, [this](job_store::Written w) {
              core.note_written(std::move(w));
            }).take();
    PoolsOptions options;
    options.start_local = [this]() -> Result<PoolAddress> { return current.load()->address(); };
    options.on_worker_act = [this](const fleet::HostId& host, const WorkerAct& act) {
      const base::MutexLock lock(sink.mutex);
      acts.push_back(std::string(act.action) + " " + host + "/" + act.worker);
    };
    options.poll_pause = std::chrono::milliseconds(20);
    options.look_pause = std::chrono::milliseconds(5);
    pools = std::make_unique<Pools>(core, io, threads, options);
    core.start({store.get(), &sink, &sink, pools.get(), &io, &threads});
    core.recover({.hosts = {{std::string(kLocalHost), fleet::HostKind::Local}}});
  }
  ~PoolsTest() override {
    io.stop();
    core.stop();
    store.reset();
  }

  template <class Condition>
  bool wait_until(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  fleet::Host host() {
    std::promise<fleet::Host> promise;
    const bool asked = core.ask([&promise](const fleet::Fleet& fleet, fleet::TimePoint) {
      promise.set_value(fleet.hosts.front());
    });
    CHECK(asked, "the owner answers");
    return promise.get_future().get();
  }
  fleet::HostState host_state() { return host().facts.state; }
  void submit() {
    Submission submission;
    submission.job = make_job_id();
    submission.facts.model_name = "tiny";
    submission.facts.max_tokens = 1;
    submission.body = std::make_shared<const std::string>("{}");
    core.submit(std::move(submission), [](const fleet::Reply&) {});
  }

  test::TempDir folder;
  std::unique_ptr<ScriptedPool> pool = std::make_unique<ScriptedPool>();
  std::atomic<ScriptedPool*> current = pool.get();
  Orchestrator core{fleet::FleetLimits{}, 1};
  std::unique_ptr<job_store::Store> store;
  NoAttempts sink;
  http::WorkThreads threads{2};
  http::IoThreads io{1};
  std::unique_ptr<Pools> pools;
  std::vector<std::string> acts;  // guarded by the sink's mutex
};

TEST_F(PoolsTest, ConnectsToTheLocalPoolAndLoadsOnDemand) {
  ASSERT_TRUE(wait_until([this] { return host_state() == fleet::HostState::Connected; }));
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  EXPECT_TRUE(wait_until([this] { return sink.attempts == 1; }));
}

TEST_F(PoolsTest, AnOlderPoolIsNotToldThatAWorkerIsOurs) {
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  ASSERT_TRUE(wait_until([this] { return sink.attempts == 1; }));
  EXPECT_EQ(pool->last_start().find("on_demand"), std::string::npos) << "it would refuse the field";
}

TEST_F(PoolsTest, WorkersThatAreStartedForJobsAreMarked) {
  pool->take_on_demand();
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  ASSERT_TRUE(wait_until([this] { return sink.attempts == 1; }));
  EXPECT_NE(pool->last_start().find(R"("on_demand":true)"), std::string::npos);
}

TEST_F(PoolsTest, AFailedLoadEndsTheJobInTheWorkersWords) {
  pool->fails = true;
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  ASSERT_TRUE(wait_until([this] {
    const base::MutexLock lock(sink.mutex);
    return sink.end.has_value();
  }));
  const base::MutexLock lock(sink.mutex);
  EXPECT_EQ(sink.end->code, ErrorCode::LoadFailed);
  EXPECT_NE(sink.end->message.find("its weights are cursed"), std::string::npos)
      << sink.end->message;
}

TEST_F(PoolsTest, AStartThatIs503IsOrderedAgain) {
  pool->plans_killed = 1;
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  EXPECT_TRUE(wait_until([this] { return sink.attempts == 1; }));
  EXPECT_EQ(pool->plans_killed, 0);
}

TEST_F(PoolsTest, AMissingModelIsFetchedAndWhoWaitsHearsHowFarItIs) {
  pool->lack_model();
  ASSERT_TRUE(wait_until([this] {
    const fleet::Host seen = host();
    return core.is_ready() && !seen.models.empty() && seen.models.begin()->second.missing_bytes > 0;
  }));
  submit();
  EXPECT_TRUE(wait_until([this] { return sink.attempts == 1; }));
  const base::MutexLock lock(sink.mutex);
  EXPECT_EQ(sink.fetched, 0.25);
}

TEST_F(PoolsTest, WorkersOfOthersAreToldAndOurOwnAreNot) {
  ASSERT_TRUE(wait_until([this] { return core.is_ready(); }));
  submit();
  ASSERT_TRUE(wait_until([this] { return sink.attempts == 1; }));
  pool->spawn("by-hand");
  ASSERT_TRUE(wait_until([this] { return host().workers.size() == 2; }));
  pool->remove("by-hand");
  ASSERT_TRUE(wait_until([this] { return host().workers.size() == 1; }));
  const base::MutexLock lock(sink.mutex);
  EXPECT_EQ(acts,
            (std::vector<std::string>{"worker.start local/by-hand", "worker.stop local/by-hand"}));
}

TEST_F(PoolsTest, ADownloadThatThePoolBeganIsShown) {
  const auto loads = [this] {
    std::promise<std::vector<contract::FleetLoad>> promise;
    core.run_on_owner([&] { promise.set_value(pools->loads()); });
    return promise.get_future().get();
  };
  ASSERT_TRUE(wait_until([this] { return host_state() == fleet::HostState::Connected; }));
  EXPECT_TRUE(loads().empty());
  pool->fetches = true;
  ASSERT_TRUE(wait_until([&] { return !loads().empty(); }));
  EXPECT_EQ(loads().front().model, "big");
  EXPECT_EQ(loads().front().stage, "fetching");
  pool->fetches = false;
  EXPECT_TRUE(wait_until([&] { return loads().empty(); }));
}

TEST_F(PoolsTest, ALostPoolIsFoundAgain) {
  ASSERT_TRUE(wait_until([this] { return host_state() == fleet::HostState::Connected; }));
  pool->stop();
  ASSERT_TRUE(wait_until([this] { return host_state() != fleet::HostState::Connected; }));
  ScriptedPool next;  // at another port
  current = &next;
  EXPECT_TRUE(wait_until([this] { return host_state() == fleet::HostState::Connected; }));
  io.stop();  // before that one goes
}

}  // namespace
}  // namespace llorch::orchestrator
