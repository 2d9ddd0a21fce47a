#include "orchestrator/orchestrator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "job_store/sqlite_store.h"
#include "support/test_paths.h"

namespace llorch::orchestrator {
namespace {

using fleet::JobId;
using fleet::NoticeKind;

constexpr std::chrono::seconds kPatience{60};
constexpr fleet::ModelHash kTiny{7, 7};
const std::string kLocal = "local";

// Whatever the owner hands on, from its own thread; read by the test.
class Written {
 public:
  template <class Look>
  bool wait(Look look) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    const base::MutexLock lock(mutex_);
    while (!look(*this)) {
      if (!changed_.wait_until(mutex_, until)) return false;
    }
    return true;
  }
  template <class Change>
  void note(Change change) {
    const base::MutexLock lock(mutex_);
    change(*this);
    changed_.notify_all();
  }

  std::vector<AttemptRequest> attempts;
  std::vector<fleet::AttemptId> cuts;
  std::vector<JobId> opened;
  std::vector<JobId> dropped;
  std::vector<std::pair<JobId, fleet::JobNotice>> notices;
  std::vector<fleet::LoadPlan> loads;
  std::vector<fleet::HostAction> steps;
  int looks = 0;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
};

class FakeParts final : public Attempts, public Answers, public PoolOrders {
 public:
  void open(AttemptRequest request) override {
    seen.note([&](Written& w) { w.attempts.push_back(std::move(request)); });
  }
  void cut(const fleet::AttemptId& attempt) override {
    seen.note([&](Written& w) { w.cuts.push_back(attempt); });
  }
  void open(const JobId& job, const fleet::SubmittedRecord&, const fleet::Position&) override {
    seen.note([&](Written& w) { w.opened.push_back(job); });
  }
  void drop(const JobId& job) override {
    seen.note([&](Written& w) { w.dropped.push_back(job); });
  }
  void tell(const JobId& job, const fleet::JobNotice& notice) override {
    seen.note([&](Written& w) { w.notices.emplace_back(job, notice); });
  }
  void note_written(const std::vector<job_store::AnswerWritten>&) override {}
  void start_worker(const fleet::HostId&, const fleet::LoadPlan& plan) override {
    seen.note([&](Written& w) { w.loads.push_back(plan); });
  }
  void stop_worker(const fleet::HostId&, const fleet::WorkerId&) override {}
  void step_host(const fleet::HostId&, fleet::HostAction action) override {
    seen.note([&](Written& w) { w.steps.push_back(action); });
  }
  std::optional<PoolAddress> address_of(const fleet::HostId&) const override {
    return PoolAddress{"http://127.0.0.1:1", ""};
  }
  void look(std::function<void()> on_done) override {
    seen.note([&](Written& w) { ++w.looks; });
    if (on_look) on_look();
    if (holds_looks) {
      held = std::move(on_done);
    } else if (on_look) {
      run_later(std::move(on_done));  // behind what on_look has posted
    } else {
      on_done();
    }
  }
  std::function<void()> on_look;
  std::function<void(std::function<void()>)> run_later;
  std::atomic<bool> holds_looks = false;
  std::function<void()> held;  // of the owner's thread

  Written seen;
};

class Daemon {
 public:
  explicit Daemon(const std::filesystem::path& file, fleet::FleetLimits limits = {}) {
    auto opened = job_store::open_sqlite_store({.file = file}, [this](job_store::Written written) {
      core->note_written(std::move(written));
    });
    CHECK(opened.ok(), opened.error().message);
    store = opened.take();
    core = std::make_unique<Orchestrator>(limits, store->begin_boot().take());
    parts.run_later = [this](std::function<void()> work) { core->run_on_owner(std::move(work)); };
    core->start({store.get(), &parts, &parts, &parts, &io, &threads});
    Recovered recovered;
    recovered.hosts = {{kLocal, fleet::HostKind::Local}};
    const Status loaded = store->load_open(
        [&recovered](fleet::JobRecords job) { recovered.jobs.push_back(std::move(job)); });
    CHECK(loaded.ok(), "the store can be read");
    core->recover(std::move(recovered));
  }
  ~Daemon() {
    io.stop();
    core->stop();
    store.reset();
  }

  // The local pool answers: it has one model, and a worker of it if wanted.
  void see_pool(bool with_worker) {
    post_pool(with_worker);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!core->is_ready() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  void post_pool(bool with_worker) {
    fleet::PoolSeen seen;
    seen.host = kLocal;
    seen.revision = ++revision;
    seen.devices = {{0, 1000, 1000, 50e9}};
    seen.models = {{.model = kTiny,
                    .name = model_name,
                    .weight_bytes = 100,
                    .need_bytes = 100,
                    .context = 1024,
                    .devices = 1}};
    if (with_worker) {
      seen.workers = {{.id = "worker-cpu-0",
                       .start = 1,
                       .model = kTiny,
                       .slots = 4,
                       .context = 1024,
                       .bytes = 100,
                       .exactness = 1}};
    }
    core->post(std::move(seen));
  }

  fleet::Reply submit(std::string model, std::string body, JobId* id = nullptr) {
    Submission submission;
    submission.job = make_job_id();
    if (id != nullptr) *id = submission.job;
    submission.facts.model_name = std::move(model);
    submission.facts.prompt_tokens = 4;
    submission.facts.max_tokens = 8;
    submission.body = std::make_shared<const std::string>(std::move(body));
    std::promise<fleet::Reply> promise;
    core->submit(std::move(submission),
                 [&promise](const fleet::Reply& reply) { promise.set_value(reply); });
    return promise.get_future().get();
  }

  void complete(const fleet::AttemptId& attempt) {
    core->post(fleet::AttemptStarted{attempt, 4, 0});
    core->post(
        fleet::AttemptEnded{.attempt = attempt, .stop_reason = "eos", .told = 8, .new_tokens = 8});
  }
  bool wait_for_end(const JobId& job) {
    return parts.seen.wait([&job](const Written& w) {
      return std::any_of(w.notices.begin(), w.notices.end(), [&job](const auto& notice) {
        return notice.first == job && notice.second.kind == NoticeKind::Ended;
      });
    });
  }

  FakeParts parts;
  http::WorkThreads threads{2};
  http::IoThreads io{1};
  std::unique_ptr<job_store::Store> store;
  std::unique_ptr<Orchestrator> core;
  std::uint64_t revision = 0;
  std::string model_name = "tiny-llama";
};

TEST(Orchestrator, SendsADurableJobWithItsBodyAndTellsItsEnd) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/true);
  JobId job;
  const fleet::Reply reply = daemon.submit("tiny-llama", R"({"prompt":"x"})", &job);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error().message;
  EXPECT_EQ(daemon.store->read_body(job).take(), R"({"prompt":"x"})");  // stored before the reply
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.attempts.size() == 1; }));
  const AttemptRequest sent = daemon.parts.seen.attempts.front();
  EXPECT_EQ(*sent.body, R"({"prompt":"x"})");
  EXPECT_EQ(sent.order.worker, "worker-cpu-0");
  EXPECT_EQ(sent.pool.url, "http://127.0.0.1:1");
  daemon.complete(sent.order.attempt);
  ASSERT_TRUE(daemon.wait_for_end(job));
  const auto records = daemon.store->read_job(job);
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE(std::holds_alternative<fleet::EndedRecord>(records->records.back()));
}

TEST(Orchestrator, LoadsAModelThatNoWorkerHas) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/false);
  JobId job;
  ASSERT_TRUE(daemon.submit("tiny-llama", "{}", &job).status.ok());
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.loads.size() == 1; }));
  const fleet::LoadPlan plan = daemon.parts.seen.loads.front();
  EXPECT_EQ(plan.model_name, "tiny-llama");
  daemon.core->note_load({kLocal, kTiny, "loading", 0.5, 100});
  EXPECT_TRUE(daemon.parts.seen.wait([&job](const Written& w) {
    return std::any_of(w.notices.begin(), w.notices.end(), [&job](const auto& notice) {
      return notice.first == job && notice.second.progress == 0.5;
    });
  }));
  daemon.core->post(
      fleet::LoadEnded{.host = kLocal, .load = plan.load, .worker = "worker-cpu-9", .start = 3});
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.attempts.size() == 1; }));
  EXPECT_EQ(daemon.parts.seen.attempts.front().order.worker, "worker-cpu-9");
}

TEST(Orchestrator, AnUnknownModelIsToldTheNearestNames) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/true);
  JobId job;
  const fleet::Reply reply = daemon.submit("tiny-lama", "{}", &job);
  ASSERT_FALSE(reply.status.ok());
  EXPECT_EQ(reply.status.error().code, ErrorCode::NotFound);
  EXPECT_NE(reply.status.error().message.find("did you mean tiny-llama"), std::string::npos)
      << reply.status.error().message;
  EXPECT_TRUE(daemon.parts.seen.opened.empty());  // nobody was promised anything
}

TEST(Orchestrator, LooksAtThePoolsBeforeItSaysThatAModelIsUnknown) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/true);
  EXPECT_EQ(daemon.submit("fresh", "{}").status.error().code, ErrorCode::NotFound);
  EXPECT_EQ(daemon.parts.seen.looks, 1);
  daemon.model_name = "fresh";  // registered since the pool was last heard
  daemon.parts.on_look = [&daemon] { daemon.post_pool(/*with_worker=*/true); };
  EXPECT_TRUE(daemon.submit("fresh", "{}").status.ok());
  EXPECT_EQ(daemon.parts.seen.looks, 2);
}

TEST(Orchestrator, ManyUnknownNamesShareALook) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/true);
  daemon.parts.holds_looks = true;
  constexpr int kAsked = 200;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kAsked; ++i) {
    Submission submission;
    submission.job = make_job_id();
    submission.facts.model_name = "unknown-" + std::to_string(i);
    submission.body = std::make_shared<const std::string>("{}");
    daemon.core->submit(std::move(submission), [&refused](const fleet::Reply& reply) {
      if (!reply.status.ok() && reply.status.error().code == ErrorCode::NotFound) ++refused;
    });
  }
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.looks == 1; }));
  // The first of them waits for the look that is under way; those who came after it for the next.
  daemon.parts.holds_looks = false;
  daemon.core->run_on_owner([&daemon] { daemon.parts.held(); });
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (refused < kAsked && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(refused, kAsked);
  EXPECT_EQ(daemon.parts.seen.looks, 2);
}

TEST(Orchestrator, AcceptsNothingBeforeItsHostsHadTheirTime) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  const fleet::Reply reply = daemon.submit("tiny-llama", "{}");
  ASSERT_FALSE(reply.status.ok());
  EXPECT_EQ(reply.status.error().code, ErrorCode::Unavailable);
  EXPECT_GT(reply.retry_after_ms, 0);
}

TEST(Orchestrator, ARefusedJobLeavesNoAnswerBehind) {
  const test::TempDir folder;
  Daemon daemon(folder / "db", {.jobs_max = 1});
  daemon.see_pool(/*with_worker=*/true);
  ASSERT_TRUE(daemon.submit("tiny-llama", "{}").status.ok());
  JobId job;
  const fleet::Reply reply = daemon.submit("tiny-llama", "{}", &job);
  ASSERT_FALSE(reply.status.ok());
  EXPECT_EQ(reply.status.error().code, ErrorCode::QueueFull);
  EXPECT_GT(reply.retry_after_ms, 0);
  EXPECT_TRUE(daemon.parts.seen.wait(
      [&job](const Written& w) { return w.dropped == std::vector<JobId>{job}; }));
}

TEST(Orchestrator, AStopIsAnsweredWhenTheJobHasEnded) {
  const test::TempDir folder;
  Daemon daemon(folder / "db");
  daemon.see_pool(/*with_worker=*/true);
  JobId job;
  ASSERT_TRUE(daemon.submit("tiny-llama", "{}", &job).status.ok());
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.attempts.size() == 1; }));
  std::promise<fleet::Reply> promise;
  daemon.core->ask_stop(job, fleet::StopCause::Asked,
                        [&promise](const fleet::Reply& reply) { promise.set_value(reply); });
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.cuts.size() == 1; }));
  daemon.core->post(fleet::AttemptEnded{.attempt = daemon.parts.seen.cuts.front(),
                                        .end = fleet::AttemptEnd::Cut});
  const fleet::Reply reply = promise.get_future().get();
  EXPECT_TRUE(reply.status.ok());
  EXPECT_EQ(reply.state, fleet::JobState::Cancelled);
}

TEST(Orchestrator, TakesOpenJobsUpAgainAndReadsTheirBodies) {
  const test::TempDir folder;
  JobId job;
  fleet::Boot first_boot = 0;
  {
    Daemon daemon(folder / "db");
    daemon.see_pool(/*with_worker=*/true);
    ASSERT_TRUE(daemon.submit("tiny-llama", R"({"prompt":"again"})", &job).status.ok());
    ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.attempts.size() == 1; }));
    first_boot = daemon.parts.seen.attempts.front().order.attempt.boot;
  }
  Daemon daemon(folder / "db");
  EXPECT_TRUE(daemon.parts.seen.wait(
      [&job](const Written& w) { return w.opened == std::vector<JobId>{job}; }));
  daemon.see_pool(/*with_worker=*/true);
  ASSERT_TRUE(daemon.parts.seen.wait([](const Written& w) { return w.attempts.size() == 1; }));
  const AttemptRequest sent = daemon.parts.seen.attempts.front();
  EXPECT_EQ(*sent.body, R"({"prompt":"again"})");
  EXPECT_GT(sent.order.attempt.boot, first_boot);
  daemon.complete(sent.order.attempt);
  EXPECT_TRUE(daemon.wait_for_end(job));
}

}  // namespace
}  // namespace llorch::orchestrator
