// What is SQLite's own: the lease, groups and bounds, damaged and foreign files, backups brought
// back.
#include "job_store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <string>

#include "job_store/sqlite.h"
#include "job_store/test_jobs.h"
#include "support/test_paths.h"

namespace llorch::job_store {
namespace {

namespace fs = std::filesystem;
using fleet::WriteOutcome;
using ::testing::HasSubstr;

std::string read_whole(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(SqliteOptions options = {}) {
    options.file = file_;
    Result<std::unique_ptr<Store>> store =
        open_sqlite_store(options, [this](Written written) { heard_.add(std::move(written)); });
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? store.take() : nullptr;
  }

  Error open_error() {
    Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file_}, nullptr);
    EXPECT_FALSE(store.ok());
    return store.ok() ? Error{} : store.error();
  }

  // That many jobs, durable, with the store closed again.
  void fill(std::uint64_t num_jobs, const std::string& body = "body") {
    const std::unique_ptr<Store> store = open();
    for (std::uint64_t i = 1; i <= num_jobs; ++i)
      EXPECT_TRUE(store->append(
          {job_id(i), 0, submitted(7), true, std::make_shared<const std::string>(body)}));
  }

  // The jobs that have not ended; the error of opening or reading.
  Result<std::size_t> count_open() {
    Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file_}, nullptr);
    if (!store.ok()) return store.error();
    std::size_t count = 0;
    const Status loaded = (*store)->load_open([&](const fleet::JobRecords&) { ++count; });
    if (!loaded.ok()) return loaded.error();
    return count;
  }

  test::TempDir folder_;
  const fs::path file_ = folder_ / "llorch.db";
  Heard heard_;
};

TEST_F(SqliteStoreTest, FilesAreTheirOwnersAlone) {
  const std::unique_ptr<Store> store = open();
  ASSERT_TRUE(store->begin_boot().ok());
  for (const char* suffix : {"", "-wal", "-shm"})
    EXPECT_EQ(fs::status(file_.string() + suffix).permissions(), fs::perms(0600)) << suffix;
}

TEST_F(SqliteStoreTest, ASecondStoreOfTheFileIsRefused) {
  const std::unique_ptr<Store> store = open();
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_THAT(error.message, HasSubstr("one orchestrator at a time"));
  EXPECT_THAT(error.message, HasSubstr("llorch.db.lock"));
}

TEST_F(SqliteStoreTest, OneThatIsAboutToEndIsWaitedFor) {
  std::unique_ptr<Store> first = open();
  std::future<bool> second = std::async(std::launch::async, [this] {
    return open_sqlite_store({.file = file_, .lease_patience = std::chrono::seconds(60)}, nullptr)
        .ok();
  });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(second.get());
}

TEST_F(SqliteStoreTest, AFolderThatIsNotThereIsNamed) {
  const Result<std::unique_ptr<Store>> store =
      open_sqlite_store({.file = folder_ / "absent/llorch.db"}, nullptr);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message, HasSubstr("absent/llorch.db"));
}

// A listener that waits, so that writes gather behind it.
class Gate {
 public:
  void pass() {
    reached_ = true;
    reached_.notify_all();
    opened_.wait();
  }
  // Until the listener waits: what it hears of no longer counts as waiting.
  void await_listener() const { reached_.wait(false); }
  void open() { open_.set_value(); }

 private:
  std::atomic<bool> reached_ = false;
  std::promise<void> open_;
  std::shared_future<void> opened_{open_.get_future().share()};
};

TEST_F(SqliteStoreTest, WhatComesWhileTheDiskWorksIsOneGroup) {
  Gate gate;
  std::vector<std::size_t> groups;
  {
    Result<std::unique_ptr<Store>> store =
        open_sqlite_store({.file = file_}, [&](const Written& written) {
          groups.push_back(written.records.size());
          gate.pass();
        });
    ASSERT_TRUE(store.ok());
    EXPECT_TRUE((*store)->append({job_id(1), 0, submitted(7), true, nullptr}));
    gate.await_listener();
    for (std::uint64_t i = 2; i <= 601; ++i)
      EXPECT_TRUE((*store)->append({job_id(i), 0, submitted(7), true, nullptr}));
    gate.open();
  }
  EXPECT_EQ(groups, (std::vector<std::size_t>{1, 512, 88}));
}

TEST_F(SqliteStoreTest, WhatWaitsIsBoundedAndEndsHaveRoomLeft) {
  Gate gate;
  Result<std::unique_ptr<Store>> opened =
      open_sqlite_store({.file = file_, .max_waiting = 16}, [&](const Written&) { gate.pass(); });
  ASSERT_TRUE(opened.ok());
  Store& store = **opened;
  EXPECT_TRUE(store.append({job_id(1), 0, submitted(7), true, nullptr}));
  gate.await_listener();
  for (std::uint64_t i = 2; i < 16; ++i)
    EXPECT_TRUE(store.append({job_id(i), 0, submitted(7), true, nullptr})) << i;
  EXPECT_FALSE(store.append({job_id(99), 0, submitted(7), true, nullptr}));
  EXPECT_FALSE(store.append_answer(group(job_id(1), 0, {1}, "a")));
  EXPECT_TRUE(store.append({job_id(1), 1, ended(fleet::JobState::Completed), true, nullptr}));
  EXPECT_TRUE(store.append({job_id(2), 1, ended(fleet::JobState::Completed), true, nullptr}));
  EXPECT_FALSE(store.append({job_id(3), 1, ended(fleet::JobState::Completed), true, nullptr}));
  gate.open();
  opened = Error{};  // writes what waits
  const Result<std::size_t> count = count_open();
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 13U) << "15 were taken, 2 of them ended";
}

TEST_F(SqliteStoreTest, BytesThatWaitAreBoundedToo) {
  const std::unique_ptr<Store> store = open({.max_waiting_bytes = 1 << 20});
  const auto body = std::make_shared<const std::string>(std::string(1 << 20, 'x'));
  EXPECT_FALSE(store->append({job_id(1), 0, submitted(7), true, body}));
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsLeftAloneAndTheErrorSaysWhatToDo) {
  std::ofstream(file_) << std::string(8192, 'x');
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::Corrupt);
  EXPECT_THAT(error.message, HasSubstr("llorch restore"));
  EXPECT_THAT(error.message, HasSubstr(file_.string()));
  EXPECT_EQ(fs::file_size(file_), 8192U);
}

TEST_F(SqliteStoreTest, NothingIsSaidToBeStoredInAFileThatWasRemovedOrReplaced) {
  const std::unique_ptr<Store> store = open();
  ASSERT_TRUE(store->put(fleet::Bucket::Hosts, "anna", "a", {}).ok());
  fs::remove(file_);
  const Result<fleet::Revision> removed = store->put(fleet::Bucket::Hosts, "bert", "b", {});
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(removed.error().message, HasSubstr(file_.string() + " was removed or replaced"));
  EXPECT_THAT(removed.error().message, HasSubstr("llorch restore"));

  std::ofstream(file_) << "another";
  EXPECT_FALSE(store->put(fleet::Bucket::Hosts, "bert", "b", {}).ok());
  ASSERT_TRUE(store->append(
      {job_id(1), 0, submitted(7), true, std::make_shared<const std::string>("body")}));
  EXPECT_EQ(heard_.wait_for_record(0), WriteOutcome::Failed);
  EXPECT_THAT(heard_.failure(), HasSubstr("removed or replaced"));
}

TEST_F(SqliteStoreTest, DamagedPagesAreAnErrorThatSaysWhatToDo) {
  fill(300, std::string(500, 'b'));
  const auto size = fs::file_size(file_);
  {
    std::fstream stream(file_, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(4096);
    const std::string garbage(size - 4096, '\xa5');
    stream.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
  }
  const Result<std::size_t> count = count_open();
  ASSERT_FALSE(count.ok());
  EXPECT_EQ(count.error().code, ErrorCode::Corrupt) << count.error().message;
  EXPECT_THAT(count.error().message, HasSubstr("llorch restore"));
}

TEST_F(SqliteStoreTest, NoSinglePageOfDamageEndsTheProgram) {
  fill(200, std::string(300, 'b'));
  const std::string whole = read_whole(file_);
  int num_told = 0;
  for (std::size_t page = 0; page < whole.size() / 4096; ++page) {
    std::string damaged = whole;
    for (std::size_t i = 0; i < 4096; i += 7)
      damaged[page * 4096 + i] = static_cast<char>(i * 31 + page);
    fs::remove(file_.string() + "-wal");
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << damaged;
    Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = file_}, nullptr);
    Status read =
        store.ok() ? (*store)->load_open([](const fleet::JobRecords&) {}) : Status(store.error());
    for (std::uint64_t i = 1; read.ok() && i <= 200; ++i) {
      const Result<std::string> body = (*store)->read_body(job_id(i));
      if (!body.ok()) read = body.error();
    }
    if (read.ok()) continue;  // a page that nobody reads, or bytes inside a text
    ++num_told;
    EXPECT_FALSE(read.error().message.empty());
  }
  EXPECT_GT(num_told, 3);
}

TEST_F(SqliteStoreTest, ATornLogEndsAtItsLastWholeGroup) {
  {
    const std::unique_ptr<Store> store = open();
    for (std::uint64_t i = 1; i <= 20; ++i) {
      EXPECT_TRUE(store->append({job_id(i), 0, submitted(7), true, nullptr}));
      heard_.wait_for_record(i - 1);
    }
    fs::copy_file(file_, folder_ / "copy.db");
    fs::copy_file(file_.string() + "-wal", folder_ / "copy.db-wal");
  }
  const auto log_size = fs::file_size(folder_ / "copy.db-wal");
  fs::resize_file(folder_ / "copy.db-wal", log_size - 1000);
  Result<std::unique_ptr<Store>> store = open_sqlite_store({.file = folder_ / "copy.db"}, nullptr);
  ASSERT_TRUE(store.ok()) << store.error().message;
  std::size_t count = 0;
  EXPECT_TRUE(
      (*store)
          ->load_open([&](const fleet::JobRecords& job) { EXPECT_EQ(job.job, job_id(++count)); })
          .ok());
  EXPECT_EQ(count, 19U);
}

TEST_F(SqliteStoreTest, ANewerSchemaAndAForeignDatabaseAreRefused) {
  fill(1);
  ASSERT_TRUE(
      (*Connection::open(file_, Connection::Mode::Write))->execute("PRAGMA user_version=99").ok());
  const Error newer = open_error();
  EXPECT_EQ(newer.code, ErrorCode::Unsupported);
  EXPECT_THAT(newer.message, HasSubstr("newer llorch"));
  fs::remove(file_);
  ASSERT_TRUE(
      (*Connection::open(file_, Connection::Mode::Create))->execute("CREATE TABLE x(y)").ok());
  EXPECT_THAT(open_error().message, HasSubstr("another program"));
}

TEST_F(SqliteStoreTest, ABackupComesBackAndBootsGoOn) {
  fill(5);
  fleet::Boot boot = 0;
  {
    const std::unique_ptr<Store> store = open();
    ASSERT_TRUE(store->put(fleet::Bucket::Keys, "k", "v", std::nullopt).ok());
    ASSERT_TRUE(store->backup(folder_ / "backup").ok());
    EXPECT_EQ(fs::status(folder_ / "backup").permissions(), fs::perms(0600));
    boot = *store->begin_boot();
    const Result<BackupReport> refused = restore_backup(folder_ / "backup", file_);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("stop orchestratord first"));
  }
  {
    const std::unique_ptr<Store> store = open();
    EXPECT_TRUE(store->append({job_id(99), 0, submitted(7), true, nullptr}));
  }
  const Result<BackupReport> report = restore_backup(folder_ / "backup", file_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->num_jobs, 5);
  EXPECT_EQ(report->num_open_jobs, 5);
  EXPECT_EQ(report->num_entries, 1);
  const std::unique_ptr<Store> store = open();
  EXPECT_TRUE(store->read_job(job_id(5)).ok());
  EXPECT_FALSE(store->read_job(job_id(99)).ok());
  EXPECT_GT(*store->begin_boot(), boot);
  Result<std::unique_ptr<Store>> old =
      open_sqlite_store({.file = file_.string() + ".before-restore"}, nullptr);
  ASSERT_TRUE(old.ok());
  EXPECT_TRUE((*old)->read_job(job_id(99)).ok()) << "what was there is kept";
}

TEST_F(SqliteStoreTest, WhatWasKeptBeforeIsNeverReplaced) {
  fill(1);
  ASSERT_TRUE(open()->backup(folder_ / "backup").ok());
  const Result<BackupReport> first = restore_backup(folder_ / "backup", file_);
  const Result<BackupReport> second = restore_backup(folder_ / "backup", file_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->kept, file_.string() + ".before-restore");
  EXPECT_EQ(second->kept, file_.string() + ".before-restore-2");
  EXPECT_TRUE(fs::exists(first->kept) && fs::exists(second->kept));
}

TEST_F(SqliteStoreTest, ABackupThatIsNotThereIsSaidToBeMissing) {
  fill(1);
  const auto restored = restore_backup(folder_ / "nothing.db", file_);
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, ErrorCode::NotFound);
  EXPECT_EQ(*count_open(), 1U);
}

TEST_F(SqliteStoreTest, OneFlippedBitOfABackupReplacesNothing) {
  fill(20, std::string(300, 'b'));
  const fs::path backup = folder_ / "backup";
  ASSERT_TRUE(open()->backup(backup).ok());
  EXPECT_TRUE(check_backup(backup)->is_sealed);
  const std::string whole = read_whole(backup);
  const auto write_byte = [&](std::size_t at, char byte) {
    std::fstream stream(backup, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  };
  // Steps that are shorter than the seal: the head, rows, free room between them and itself.
  for (std::size_t at = 0; at < whole.size(); at += 61) {
    write_byte(at, static_cast<char>(whole[at] ^ 1));
    const Result<BackupReport> report = restore_backup(backup, file_);
    ASSERT_FALSE(report.ok()) << "byte " << at;
    EXPECT_EQ(report.error().code, ErrorCode::Corrupt) << report.error().message;
    EXPECT_THAT(report.error().message, HasSubstr("damaged"));
    write_byte(at, whole[at]);
  }
  EXPECT_FALSE(fs::exists(file_.string() + ".before-restore"));
  EXPECT_EQ(*count_open(), 20U);
}

TEST_F(SqliteStoreTest, ABackupWithoutItsSealComesBackAndSaysSo) {
  fill(5);
  const fs::path backup = folder_ / "backup";
  ASSERT_TRUE(open()->backup(backup).ok());
  fs::resize_file(backup, fs::file_size(backup) / 512 * 512);
  const Result<BackupReport> report = restore_backup(backup, file_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->is_sealed);
  EXPECT_EQ(report->num_jobs, 5);
}

TEST_F(SqliteStoreTest, ADamagedBackupReplacesNothing) {
  fill(100, std::string(500, 'b'));
  ASSERT_TRUE(open()->backup(folder_ / "backup").ok());
  {
    std::fstream stream(folder_ / "backup", std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(8192);
    stream << std::string(8192, '\xa5');
  }
  const Result<BackupReport> report = restore_backup(folder_ / "backup", file_);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::Corrupt) << report.error().message;
  EXPECT_EQ(*count_open(), 100U);
}

}  // namespace
}  // namespace llorch::job_store
