#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace llorch::base {
namespace {

using std::chrono::milliseconds;

class FileLockTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  const std::filesystem::path file_ =
      std::filesystem::path(testing::TempDir()) / ("file_lock_" + std::to_string(::getpid()));
};

TEST_F(FileLockTest, OnlyOneHolder) {
  EXPECT_FALSE(FileLock::is_held(file_));
  Result<std::unique_ptr<FileLock>> first = FileLock::acquire(file_, milliseconds(0));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(FileLock::is_held(file_));
  const Result<std::unique_ptr<FileLock>> second = FileLock::acquire(file_, milliseconds(20));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::Conflict);
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
  first->reset();
  EXPECT_FALSE(FileLock::is_held(file_));
  EXPECT_TRUE(FileLock::acquire(file_, milliseconds(0)).ok());
}

TEST_F(FileLockTest, AskingDoesNotTakeIt) {
  { ASSERT_TRUE(FileLock::acquire(file_, milliseconds(0)).ok()); }
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(FileLock::is_held(file_));
  EXPECT_TRUE(FileLock::acquire(file_, milliseconds(0)).ok());
}

TEST_F(FileLockTest, RemovingTheFileLetsNobodyInBeside) {
  std::atomic<int> inside = 0;
  std::atomic<int> worst = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        Result<std::unique_ptr<FileLock>> lock = FileLock::acquire(file_, milliseconds(10'000));
        ASSERT_TRUE(lock.ok());
        const int now = ++inside;
        if (now > worst) worst = now;
        std::this_thread::yield();
        --inside;
        (*lock)->remove_file();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worst, 1);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(FileLockTest, ThreadsExcludeEachOther) {
  std::atomic<int> inside = 0;
  std::atomic<int> worst = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const auto lock = FileLock::acquire(file_, milliseconds(10'000));
        ASSERT_TRUE(lock.ok());
        const int now = ++inside;
        if (now > worst) worst = now;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worst, 1);
}

TEST_F(FileLockTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(FileLock::acquire(file_ / "deeper" / "lock", milliseconds(0)).ok());
}

}  // namespace
}  // namespace llorch::base
