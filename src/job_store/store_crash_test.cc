// Promises that must hold when the process does not: children that are killed, run out of disk or
// hold the lease.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "job_store/sqlite_store.h"
#include "job_store/test_jobs.h"
#include "support/test_paths.h"

namespace llorch::job_store {
namespace {

using fleet::WriteOutcome;

// What a child says once it is promised, through a pipe that outlives it.
struct Promise {
  std::uint64_t job = 0;
  std::uint32_t seq = 0;       // of a record
  std::uint32_t answered = 0;  // ids of an answer; 0: it is a record
};

class Child {
 public:
  // Runs `body` with the pipe's end in a process of its own.
  explicit Child(const std::function<void(int pipe)>& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ~Child() {
    kill();
    ::close(pipe_);
  }

  // The next promise; false at the end of the pipe.
  bool read(Promise& promise) const {
    std::size_t got = 0;
    while (got < sizeof promise) {
      const ssize_t bytes =
          ::read(pipe_, reinterpret_cast<char*>(&promise) + got, sizeof promise - got);
      if (bytes <= 0) return false;
      got += static_cast<std::size_t>(bytes);
    }
    return true;
  }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
  }
  int wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

void say(int pipe, const Promise& promise) {
  [[maybe_unused]] const ssize_t written = ::write(pipe, &promise, sizeof promise);
}

OnWritten say_all(int pipe) {
  return [pipe](const Written& written) {
    for (const AnswerWritten& answer : written.answers)
      if (answer.outcome == WriteOutcome::Durable)
        say(pipe, {answer.attempt.job.low, 0, static_cast<std::uint32_t>(answer.upto.total())});
    for (const RecordWritten& record : written.records)
      if (record.outcome == WriteOutcome::Durable) say(pipe, {record.job.low, record.seq, 0});
  };
}

constexpr std::uint32_t kLastRecord = 2;

// Submits, dispatches, answers and ends jobs from two threads, without end.
void storm(const std::filesystem::path& file, std::uint64_t round, int pipe) {
  Result<std::unique_ptr<Store>> opened = open_sqlite_store({.file = file}, say_all(pipe));
  if (!opened.ok()) ::_exit(3);
  Store& store = **opened;
  if (!store.begin_boot().ok()) ::_exit(4);
  const auto body = std::make_shared<const std::string>(std::string(2000, 'b'));
  std::vector<std::jthread> threads;
  for (std::uint64_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0;; ++i) {
        const fleet::JobId job = job_id(round << 40 | thread << 32 | i);
        const auto push = [](const auto& append) {
          while (!append()) std::this_thread::yield();
        };
        push([&] { return store.append({job, 0, submitted(7), true, body}); });
        push([&] { return store.append({job, 1, fleet::DispatchedRecord{}, false, nullptr}); });
        push([&] { return store.append_answer(group(job, 0, {1, 2, 3}, "text")); });
        push([&] { return store.append_answer(group(job, 3, {4}, "more")); });
        if (i % 4 == 3) continue;  // stays open
        push([&] {
          return store.append({job, kLastRecord, ended(fleet::JobState::Completed), true, nullptr});
        });
      }
    });
  }
}

TEST(StoreCrash, NothingPromisedIsLostAndNothingIsThereTwiceAfterSigkill) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "llorch.db";
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  fleet::Boot last_boot = 0;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    std::map<std::uint64_t, Promise> promised;  // the furthest of each job
    std::uint64_t num_promises = 0;
    {
      Child child([&](int pipe) { storm(file, round, pipe); });
      const std::uint64_t enough = random() % 1500 + 1;
      Promise promise;
      const auto note = [&] {
        Promise& known = promised[promise.job];
        known.seq = std::max(known.seq, promise.seq);
        known.answered = std::max(known.answered, promise.answered);
        ++num_promises;
      };
      while (num_promises < enough && child.read(promise)) note();
      ASSERT_GE(num_promises, enough) << "the child ended by itself";
      child.kill();
      while (child.read(promise)) note();
    }
    Result<std::unique_ptr<Store>> opened = open_sqlite_store({.file = file}, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Result<fleet::Boot> boot = (*opened)->begin_boot();
    ASSERT_TRUE(boot.ok());
    EXPECT_GE(*boot, last_boot + 2) << "the child's boot was durable";
    last_boot = *boot;
    for (const auto& [job, promise] : promised) {
      const Result<fleet::JobRecords> read = (*opened)->read_job(job_id(job));
      ASSERT_TRUE(read.ok()) << read.error().message;
      EXPECT_GT(read->records.size(), promise.seq);
      EXPECT_LE(read->records.size(), kLastRecord + 1);
      EXPECT_GE(read->stored.total(), promise.answered);
      // Writes keep their order: who has ended has told everything.
      if (read->records.size() == kLastRecord + 1) {
        EXPECT_EQ(read->stored.total(), 4U);
      }
      EXPECT_EQ((*opened)->read_body(job_id(job))->size(), 2000U);
    }
    const Status whole = (*opened)->load_open([](const fleet::JobRecords& job) {
      EXPECT_FALSE(job.records.empty());
      EXPECT_TRUE(std::holds_alternative<fleet::SubmittedRecord>(job.records[0]));
      for (const fleet::Record& record : job.records)
        EXPECT_FALSE(std::holds_alternative<fleet::EndedRecord>(record));
    });
    ASSERT_TRUE(whole.ok()) << whole.error().message;
  }
  EXPECT_TRUE(check_backup(file).ok());
}

TEST(StoreCrash, TheLeaseEndsWithItsProcess) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "llorch.db";
  Child child([&](int pipe) {
    const Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file}, nullptr);
    say(pipe, {store.ok() ? 1U : 0U, 0, 0});
    ::pause();
  });
  Promise promise;
  ASSERT_TRUE(child.read(promise));
  ASSERT_EQ(promise.job, 1U);
  const Result<std::unique_ptr<Store>> refused = open_sqlite_store({.file = file}, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  child.kill();
  EXPECT_TRUE(open_sqlite_store({.file = file}, nullptr).ok());
}

void limit_files(rlim_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

// Exit codes name the broken promise.
void run_out_of_disk(const std::filesystem::path& file, int pipe) {
  ::signal(SIGXFSZ, SIG_IGN);
  Heard heard;
  const OnWritten tell = say_all(pipe);
  Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file}, [&](Written written) {
    tell(written);
    heard.add(std::move(written));
  });
  if (!store.ok()) ::_exit(3);
  limit_files(rlim_t{1} << 20);
  const auto body = std::make_shared<const std::string>(std::string(20'000, 'b'));
  std::uint64_t job = 0;
  WriteOutcome outcome = WriteOutcome::Durable;
  while (outcome == WriteOutcome::Durable && job < 1000) {
    if (!(*store)->append({job_id(++job), 0, submitted(7), true, body})) ::_exit(4);
    outcome = heard.wait_for_record(job - 1);
  }
  if (outcome != WriteOutcome::Failed || job < 10) ::_exit(5);
  if (heard.failure().find("see to the disk") == std::string::npos) ::_exit(6);
  if (!(*store)->read_job(job_id(1)).ok()) ::_exit(7);   // reading goes on
  if ((*store)->read_job(job_id(job)).ok()) ::_exit(8);  // nothing of the failed one is there
  if ((*store)->put(fleet::Bucket::Keys, "k", body->substr(), std::nullopt).ok()) ::_exit(9);
  limit_files(RLIM_INFINITY);
  if (!(*store)->append({job_id(job), 0, submitted(7), true, body})) ::_exit(10);
  if (heard.wait_for_record(job) != WriteOutcome::Durable) ::_exit(11);  // and writing, with room
}

TEST(StoreCrash, AFullDiskFailsWritesKeepsPromisesAndHeals) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "llorch.db";
  std::vector<std::uint64_t> promised;
  {
    Child child([&](int pipe) { run_out_of_disk(file, pipe); });
    for (Promise promise; child.read(promise);) promised.push_back(promise.job);
    const int status = child.wait();
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file}, nullptr);
  ASSERT_TRUE(store.ok()) << store.error().message;
  std::size_t count = 0;
  EXPECT_TRUE((*store)->load_open([&](const fleet::JobRecords&) { ++count; }).ok());
  EXPECT_EQ(count, promised.size());
  for (const std::uint64_t job : promised) EXPECT_TRUE((*store)->read_body(job_id(job)).ok());
}

}  // namespace
}  // namespace llorch::job_store
