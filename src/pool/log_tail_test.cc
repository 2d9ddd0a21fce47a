#include "pool/log_tail.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/test_paths.h"

namespace llorch::pool {
namespace {

class LogTailTest : public testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  static std::string more(LogTail& tail) { return tail.read_more().take(); }

  test::TempDir folder_;
  const std::filesystem::path file_ = folder_ / "worker.log";
};

TEST_F(LogTailTest, GivesTheLastLinesAndWhatFollows) {
  append("one\ntwo\nthree\n");
  LogTail tail = LogTail::open(file_, 2).take();
  EXPECT_EQ(more(tail), "two\nthree\n");
  EXPECT_EQ(more(tail), "");
  append("four\nunfini");
  EXPECT_EQ(more(tail), "four\n");
  EXPECT_EQ(tail.read_more(true).take(), "unfini");
}

TEST_F(LogTailTest, FollowsTheNameToTheNextFile) {
  append("old\n");
  LogTail tail = LogTail::open(file_, 10).take();
  EXPECT_EQ(more(tail), "old\n");
  append("late\n");
  std::filesystem::rename(file_, folder_ / "worker.log.1");
  EXPECT_EQ(more(tail), "late\n");
  append("new\n");
  EXPECT_EQ(more(tail), "new\n");
}

TEST_F(LogTailTest, AFileThatIsNotThereYetIsAwaited) {
  Result<LogTail> tail = LogTail::open(file_, 10);
  ASSERT_TRUE(tail.ok()) << tail.error().message;
  EXPECT_EQ(more(*tail), "");
  append("first\n");
  EXPECT_EQ(more(*tail), "first\n");
}

}  // namespace
}  // namespace llorch::pool
