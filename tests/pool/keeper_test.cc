// The keeper alone, from a record written by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/file_lock.h"
#include "base/process.h"
#include "pool/pool_fixture.h"
#include "pool/worker_launch.h"
#include "pool/worker_record.h"

namespace llorch::pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::eventually;
using ::testing::HasSubstr, ::testing::Not;

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    home_.state = folder_.path();
    std::filesystem::create_directories(home_.workers());
    record_.worker.id = "worker-cpu-0";
    record_.request = {.backend = "cpu", .model = "m"};
    record_.mark = make_mark();
    record_.port = 1;
    record_.launch.program = "/bin/sh";
    record_.launch.environment = {"PATH=/usr/bin:/bin", mark_variable(record_.mark)};
    record_.launch.log_file = folder_ / "log";
    record_.launch.log_bytes_max = 1 << 20;
    record_.launch.lock_file = pool_lock_file(home_);
    record_.launch.orphan_patience = seconds(60);
    record_.launch.term_patience = seconds(60);
    lock_ = base::FileLock::acquire(record_.launch.lock_file, milliseconds(0)).take();
  }
  ~KeeperTest() override {
    keeper_.send_signal(kKillOrder);
    EXPECT_TRUE(eventually([this] {
      return base::processes_with_variable(mark_variable(record_.mark)).empty();
    })) << "a process was left behind";
  }

  std::filesystem::path file() const { return record_file(home_, record_.worker.id); }

  void start(const std::string& script) {
    record_.launch.arguments = {"-c", script};
    ASSERT_TRUE(write_record(file(), record_).ok());
    auto held = base::HeldProcess::spawn(LLORCH_TEST_POOL, {"keep", file().string()}, {});
    ASSERT_TRUE(held.ok());
    Result<base::ProcessHandle> keeper = (*held)->release();
    ASSERT_TRUE(keeper.ok());
    keeper_ = keeper.take();
  }

  ExitNote finish() {
    EXPECT_TRUE(eventually([this] { return keeper_.has_ended(); })) << log();
    const std::optional<ExitNote> note = read_exit_note(file(), record_.mark);
    EXPECT_TRUE(note.has_value()) << log();
    return note.value_or(ExitNote{});
  }

  std::string log() const {
    std::ifstream in(folder_ / "log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool says(const std::string& text) const { return log().find(text) != std::string::npos; }

  test::TempDir folder_;
  base::Home home_;
  WorkerRecord record_;
  std::unique_ptr<base::FileLock> lock_;
  base::ProcessHandle keeper_;
};

TEST_F(KeeperTest, NotesHowItsWorkerEnded) {
  start("echo out; echo err >&2; printf unfinished; exit 3");
  const ExitNote note = finish();
  EXPECT_EQ(note.code, 3);
  EXPECT_EQ(note.signal, 0);
  EXPECT_FALSE(note.ordered || note.told || note.orphaned || note.oom_kill);
  EXPECT_TRUE(note.start_error.empty());
  EXPECT_FALSE(note.ended_at.empty());
  EXPECT_THAT(log(), HasSubstr("out\nerr\nunfinished\n"));
}

TEST_F(KeeperTest, NotesASignal) {
  start("kill -SEGV $$");
  EXPECT_EQ(finish().signal, SIGSEGV);
}

TEST_F(KeeperTest, NotesThatTheProgramIsNotThere) {
  record_.launch.program = folder_ / "absent";
  start("");
  EXPECT_THAT(finish().start_error, HasSubstr("cannot be started"));
}

TEST_F(KeeperTest, NotesThatTheKernelTookMemoryBack) {
  record_.launch.oom_counter = folder_ / "vmstat";
  std::ofstream(folder_ / "vmstat") << "nr_free_pages 12\noom_kill 4\nother 1\n";
  start("echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return read_run_note(file(), record_.mark).has_value(); }));
  std::ofstream(folder_ / "vmstat") << "nr_free_pages 12\noom_kill 5\nother 1\n";
  const auto run = read_run_note(file(), record_.mark);
  ASSERT_TRUE(run.has_value());
  ::kill(run->process.pid, SIGKILL);
  const ExitNote note = finish();
  EXPECT_EQ(note.signal, SIGKILL);
  EXPECT_TRUE(note.oom_kill);
  EXPECT_FALSE(note.ordered);
}

TEST_F(KeeperTest, PassesTermOnAndKillsWhenOrdered) {
  start("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return says("ready"); }));
  keeper_.send_signal(SIGTERM);
  ASSERT_TRUE(eventually([this] { return says("asked"); }));
  EXPECT_FALSE(keeper_.has_ended());
  keeper_.send_signal(kKillOrder);
  const ExitNote note = finish();
  EXPECT_TRUE(note.told);
  EXPECT_TRUE(note.ordered);
  EXPECT_EQ(note.signal, SIGKILL);
}

TEST_F(KeeperTest, TakesEverythingAlongThatTheWorkerStarted) {
  start(
      "setsid sh -c 'trap \"\" TERM HUP INT; echo escaped; while :; do sleep 0.01; done' & "
      "while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return says("escaped"); }));
  keeper_.send_signal(kKillOrder);
  finish();  // the fixture asserts that nothing carries its mark
}

TEST_F(KeeperTest, TheWorkerDiesWithItsKeeper) {
  start("echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return says("ready"); }));
  ASSERT_TRUE(eventually([this] { return read_run_note(file(), record_.mark).has_value(); }));
  const auto run = read_run_note(file(), record_.mark);
  keeper_.send_signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !base::is_running(run->process); }));
  EXPECT_FALSE(read_exit_note(file(), record_.mark).has_value());
}

TEST_F(KeeperTest, EndsAWorkerThatNobodyOwns) {
  record_.launch.orphan_patience = milliseconds(200);
  start("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return says("ready"); }));
  EXPECT_FALSE(keeper_.has_ended()) << "there is an owner";
  lock_.reset();
  const ExitNote note = finish();
  EXPECT_TRUE(note.orphaned);
  EXPECT_THAT(log(), HasSubstr("no pool manager"));
}

TEST_F(KeeperTest, EndsAnOrphanThatIgnoresIt) {
  record_.launch.orphan_patience = milliseconds(100);
  record_.launch.term_patience = milliseconds(100);
  start("trap '' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([this] { return says("ready"); }));
  lock_.reset();
  const ExitNote note = finish();
  EXPECT_TRUE(note.orphaned);
  EXPECT_EQ(note.signal, SIGKILL);
}

TEST_F(KeeperTest, BoundsTheLog) {
  record_.launch.log_bytes_max = 2000;
  start("i=0; while [ $i -lt 2000 ]; do echo line $i of many; i=$((i+1)); done");
  finish();
  for (const char* suffix : {"", ".1", ".2", ".3"}) {
    const std::filesystem::path log_file = (folder_ / "log").string() + suffix;
    ASSERT_TRUE(std::filesystem::exists(log_file)) << log_file;
    EXPECT_LE(std::filesystem::file_size(log_file), 2000U);
    std::ifstream in(log_file);
    std::string line;
    while (std::getline(in, line))
      EXPECT_TRUE(line.starts_with("line ") || line.starts_with(kKeeperPrefix)) << line;
  }
  EXPECT_FALSE(std::filesystem::exists((folder_ / "log").string() + ".4"));
  EXPECT_THAT(log(), HasSubstr("line 1999 of many\n"));
}

TEST_F(KeeperTest, ConfinesItsWorker) {
  record_.launch.confinement =
      base::ConfinementRules{.readable = {"/etc"},
                             .executable = {"/usr", "/lib", "/lib64", "/bin"},
                             .writable = {"/dev/null"}};
  start("echo > " + (folder_ / "forbidden").string() + "; echo done");
  EXPECT_EQ(finish().code, 0);
  EXPECT_THAT(log(), HasSubstr("done"));
  if (log().find("files by landlock") == std::string::npos)
    GTEST_SKIP() << "this kernel has no landlock: " << log();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "forbidden"));
}

TEST_F(KeeperTest, ARecordItCannotReadIsNoReasonToStartAnything) {
  std::ofstream(file()) << "{}";
  auto held = base::HeldProcess::spawn(LLORCH_TEST_POOL, {"keep", file().string()}, {});
  ASSERT_TRUE(held.ok());
  Result<base::ProcessHandle> keeper = (*held)->release();
  ASSERT_TRUE(keeper.ok());
  EXPECT_TRUE(eventually([&] { return keeper->has_ended(); }));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log"));
}

}  // namespace
}  // namespace llorch::pool
