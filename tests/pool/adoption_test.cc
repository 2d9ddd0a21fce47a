// Managers come and go, workers stay: restarts, kills, leftovers of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/process.h"
#include "pool/pool_fixture.h"
#include "pool/pool_manager.h"
#include "pool/worker_record.h"
#include "support/child_process.h"

namespace llorch::pool {
namespace {

using contract::ExitCategory;
using contract::PoolWorker;
using contract::PoolWorkerState;
using std::chrono::milliseconds;
using test::eventually;
using ::testing::HasSubstr, ::testing::IsEmpty;

class AdoptionTest : public ::testing::Test {
 protected:
  WorkerRecord record(const std::string& id) const {
    Result<WorkerRecord> read = read_record(record_file(pool_.options.home, id));
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read.take() : WorkerRecord{};
  }
  // The record of a ready worker that has been stopped since; the manager is gone, too.
  WorkerRecord record_of_one_that_ran() {
    pool_.start();
    const std::string id = pool_.ready_worker("ok");
    WorkerRecord stale = record(id);
    EXPECT_TRUE(pool_.manager().stop_worker(id).ok());
    EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Stopped));
    pool_.detach();
    return stale;
  }

  test::PoolFixture pool_;
};

// Records are files, and files may say anything.
TEST_F(AdoptionTest, ANumberThatIsNoneInARecordEndsNobody) {
  pool_.start();
  const std::string id = pool_.start_worker("exit=3")->id;
  ASSERT_TRUE(pool_.wait_for(id, PoolWorkerState::Failed));
  pool_.detach();
  WorkerRecord changed = record(id);
  changed.worker.id = "worker-cpu-99999999999999999999999";
  ASSERT_TRUE(write_record(record_file(pool_.options.home, changed.worker.id), changed).ok());
  changed.worker.id = "../../elsewhere";
  ASSERT_TRUE(write_record(record_file(pool_.options.home, "worker-cpu-7"), changed).ok());
  pool_.start();
  EXPECT_EQ(pool_.worker("../../elsewhere").id, "") << "it is not what its file is called";
  const std::string large = "worker-cpu-99999999999999999999999";
  ASSERT_TRUE(pool_.manager().restart_worker(large).ok());
  EXPECT_TRUE(pool_.wait_for(large, PoolWorkerState::Failed)) << "it started, and ended again";
  EXPECT_EQ(pool_.worker(id).state, PoolWorkerState::Failed) << "the others are still there";
}

TEST_F(AdoptionTest, WhatOlderVersionsLeftOpenIsClosed) {
  const auto mode_of = [](const std::filesystem::path& path) {
    return static_cast<unsigned>(std::filesystem::status(path).permissions());
  };
  pool_.start();
  const std::string id = pool_.ready_worker("ok");
  pool_.detach();
  const base::Home& home = pool_.options.home;
  const std::filesystem::path file = record_file(home, id);
  const std::filesystem::path log = home.logs() / (id + ".log");
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_EQ(mode_of(log), 0600U);
  for (const std::filesystem::path& path : {file, log, home.logs(), home.workers()})
    std::filesystem::permissions(path, std::filesystem::perms::all);
  pool_.start();
  EXPECT_EQ(mode_of(file), 0700U & mode_of(file)) << "others have nothing in there";
  EXPECT_EQ(mode_of(log) & 077U, 0U);
  EXPECT_EQ(mode_of(home.logs()), 0700U);
  EXPECT_EQ(mode_of(home.workers()), 0700U);
}

TEST_F(AdoptionTest, AWorkerOutlivesItsManagerAndIsAdopted) {
  pool_.start();
  const std::string id = pool_.ready_worker("ok");
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).pid > 0; }));
  const PoolWorker before = pool_.worker(id);
  pool_.detach();
  EXPECT_TRUE(base::identify_process(static_cast<int>(before.pid)).has_value());
  const std::vector<PoolWorker> without = read_worker_records(pool_.options.home);
  ASSERT_EQ(without.size(), 1U);
  EXPECT_EQ(without[0].state, PoolWorkerState::Ready);
  EXPECT_EQ(without[0].pid, before.pid);

  pool_.start();
  ASSERT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
  ASSERT_TRUE(eventually([&] { return pool_.worker(id).pid > 0; }));
  const PoolWorker after = pool_.worker(id);
  EXPECT_EQ(after.pid, before.pid);
  EXPECT_EQ(after.uri, before.uri);
  EXPECT_EQ(after.started_at, before.started_at);
  EXPECT_EQ(after.ready_at, before.ready_at);
  EXPECT_EQ(after.planned, before.planned);
  EXPECT_EQ(pool_.start_worker("ok")->id, "worker-cpu-1");
}

TEST_F(AdoptionTest, AManagerThatIsKilledLosesNothing) {
  test::ChildProcess manager(LLORCH_TEST_POOL,
                             {"manage", pool_.root().string(), "ok", "ok,lines=3"});
  ASSERT_TRUE(manager.wait_for_err("ready")) << manager.err();
  manager.signal(SIGKILL);
  manager.wait();
  pool_.start();
  for (const char* id : {"worker-cpu-0", "worker-cpu-1"}) {
    EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
    EXPECT_TRUE(pool_.manager().stop_worker(id).ok());
    EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Stopped));
  }
}

TEST_F(AdoptionTest, AWorkerWhoseCallbackWasLostIsFoundReady) {
  test::ChildProcess manager(LLORCH_TEST_POOL, {"manage", pool_.root().string(), "ok,load=300"});
  ASSERT_TRUE(manager.wait_for_err("started")) << manager.err();
  manager.signal(SIGKILL);
  manager.wait();
  pool_.start();
  EXPECT_EQ(pool_.worker("worker-cpu-0").state, PoolWorkerState::Starting);
  EXPECT_TRUE(pool_.wait_for("worker-cpu-0", PoolWorkerState::Ready));
  EXPECT_THAT(pool_.worker("worker-cpu-0").uri, HasSubstr("http://127.0.0.1:"));
}

// Killed at any moment, also in the middle of a start: the next manager has each worker whole or
// not at all.
TEST_F(AdoptionTest, AManagerMayBeKilledAtAnyMoment) {
  for (int i = 0; i < 16; ++i) {
    test::ChildProcess manager(LLORCH_TEST_POOL,
                               {"manage", pool_.root().string(), "ok", "ok", "ok"});
    std::this_thread::sleep_for(milliseconds(2 * i));
    manager.signal(SIGKILL);
    manager.wait();
    pool_.start();
    for (const PoolWorker& worker : pool_.manager().workers()) {
      PoolWorker now;
      EXPECT_TRUE(eventually([&] {
        now = pool_.worker(worker.id);
        const bool never_ran = now.reason.find("nothing had run yet") != std::string::npos;
        return now.state == PoolWorkerState::Ready || never_ran;
      })) << "round "
          << i << ": " << contract::name(now.state) << ", " << now.reason;
    }
    pool_.manager().stop_all({});
    pool_.detach();
    EXPECT_TRUE(eventually([&] { return test::processes_naming(pool_.root().string()).empty(); }))
        << "round " << i;
    EXPECT_THAT(find_records(pool_.options.home), IsEmpty());
  }
}

TEST_F(AdoptionTest, TheEndOfAWorkerIsNotLostWithoutAManager) {
  pool_.start();
  const std::string crash = pool_.ready_worker("ok");
  const std::string killed = pool_.ready_worker("ok");
  const WorkerRecord crashed = record(crash);
  const WorkerRecord keeperless = record(killed);
  const int pid = static_cast<int>(
      read_run_note(record_file(pool_.options.home, crash), crashed.mark)->process.pid);
  pool_.detach();
  ::kill(pid, SIGSEGV);
  ::kill(keeperless.keeper.pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return test::processes_naming(pool_.root().string()).empty(); }));
  // A process that is about to go may be seen a moment longer.
  std::vector<PoolWorker> without;
  EXPECT_TRUE(eventually([&] {
    without = read_worker_records(pool_.options.home);
    return without.size() == 2 && without[0].state == PoolWorkerState::Failed &&
           without[1].state == PoolWorkerState::Failed;
  }));
  ASSERT_EQ(without.size(), 2U);
  EXPECT_EQ(without[0].category, ExitCategory::Crash);

  pool_.start();
  ASSERT_TRUE(pool_.wait_for(crash, PoolWorkerState::Failed));
  EXPECT_EQ(pool_.worker(crash).exit_signal, SIGSEGV);
  ASSERT_TRUE(pool_.wait_for(killed, PoolWorkerState::Failed));
  EXPECT_THAT(pool_.worker(killed).reason, HasSubstr("its keeper was killed"));
  const PoolWorker before = pool_.worker(crash);
  pool_.start();
  EXPECT_EQ(pool_.worker(crash), before) << "a failed worker stays as it is";
  EXPECT_TRUE(pool_.manager().stop_worker(crash).ok());
  pool_.start();
  EXPECT_EQ(pool_.worker(crash).id, "") << "forgotten for good";
}

TEST_F(AdoptionTest, AnOrphanEndsItself) {
  pool_.options.timing.orphan_patience = milliseconds(200);
  pool_.start();
  const std::string id = pool_.ready_worker("ok");
  pool_.detach();
  ASSERT_TRUE(eventually([&] { return test::processes_naming(pool_.root().string()).empty(); }));
  pool_.start();
  EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Stopped));
  EXPECT_THAT(pool_.worker(id).reason, HasSubstr("no pool manager"));
}

TEST_F(AdoptionTest, AStopThatWasBegunIsFinished) {
  pool_.start();
  const std::string id = pool_.ready_worker("ok,ignore-shutdown");
  ASSERT_TRUE(pool_.manager().stop_worker(id).ok());
  pool_.options.timing.drain_patience = milliseconds(50);
  pool_.start();
  EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Stopped));
}

TEST_F(AdoptionTest, OneManagerForOneHome) {
  pool_.start();
  const auto second = PoolManager::start(pool_.options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::Conflict);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(::getpid())));
}

TEST_F(AdoptionTest, ARecycledNumberIsNotTouched) {
  WorkerRecord stale = record_of_one_that_ran();
  const std::string id = stale.worker.id;
  // Somebody else has the keeper's number now.
  base::ProcessOptions bystander;
  bystander.program = "/bin/sleep";
  bystander.arguments = {"1000"};
  bystander.dies_with_parent = true;
  const auto other = base::Process::spawn(bystander);
  ASSERT_TRUE(other.ok());
  stale.keeper = *base::identify_process((*other)->pid());
  stale.keeper.start_ticks -= 1;
  const std::filesystem::path file = record_file(pool_.options.home, id);
  ASSERT_TRUE(write_record(file, stale).ok());
  ASSERT_TRUE(write_note(file, RunNote{stale.mark, stale.keeper, ""}).ok());
  pool_.start();
  EXPECT_EQ(pool_.worker(id).state, PoolWorkerState::Failed);
  EXPECT_TRUE(pool_.manager().stop_worker(id).ok());
  pool_.manager().stop_all({});
  EXPECT_FALSE((*other)->wait_for(milliseconds(20)).has_value()) << "a stranger was ended";
}

TEST_F(AdoptionTest, ARestartOfTheMachineIsNoCrash) {
  WorkerRecord stale = record_of_one_that_ran();
  const std::string id = stale.worker.id;
  stale.keeper.boot_id = "another";
  const RunNote note{stale.mark, stale.keeper, ""};
  ASSERT_TRUE(write_note(record_file(pool_.options.home, id), note).ok());
  ASSERT_TRUE(write_record(record_file(pool_.options.home, id), stale).ok());
  pool_.start();
  EXPECT_EQ(pool_.worker(id).state, PoolWorkerState::Stopped);
  EXPECT_THAT(pool_.worker(id).reason, HasSubstr("the machine was restarted"));
  EXPECT_THAT(find_records(pool_.options.home), IsEmpty());
}

TEST_F(AdoptionTest, ARecordThatCannotBeReadIsMovedAside) {
  std::filesystem::create_directories(pool_.options.home.workers());
  const std::filesystem::path bad = record_file(pool_.options.home, "worker-cpu-0");
  std::ofstream(bad) << "{\"version\": 1, half of it";
  pool_.start();
  EXPECT_THAT(pool_.manager().workers(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(bad));
  EXPECT_TRUE(std::filesystem::exists(bad.string() + ".bad"));
  EXPECT_EQ(pool_.ready_worker("ok"), "worker-cpu-0");
}

TEST_F(AdoptionTest, NoRecordsNoWorkers) {
  EXPECT_THAT(read_worker_records(pool_.options.home), IsEmpty());
}

}  // namespace
}  // namespace llorch::pool
