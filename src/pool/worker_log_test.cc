#include "pool/worker_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/log_file.h"
#include "base/utf8.h"
#include "support/test_paths.h"

namespace llorch::pool {
namespace {

using ::testing::ElementsAre;

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(WorkerLog, StartsAnewWhenItIsFullAndKeepsThreeOlder) {
  const test::TempDir folder;
  WorkerLog log(folder / "log", 20);
  for (int i = 0; i < 12; ++i) log.write("line " + std::to_string(10 + i) + "\n");  // 8 bytes each
  EXPECT_EQ(content(folder / "log"), "line 20\nline 21\n");
  EXPECT_EQ(content(folder / "log.1"), "line 18\nline 19\n");
  EXPECT_EQ(content(folder / "log.2"), "line 16\nline 17\n");
  EXPECT_EQ(content(folder / "log.3"), "line 14\nline 15\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "log.4"));
}

TEST(WorkerLog, ListsTheLogsOfWorkersAlone) {
  const test::TempDir folder;
  base::Home home;
  home.state = folder.path();
  EXPECT_TRUE(list_logs(home).empty()) << "no folder yet";
  std::filesystem::create_directories(home.logs() / "worker-cpu-9.log");
  for (const char* name : {"worker-cuda-1.log", "worker-cpu-0.log", "worker-cpu-0.log.1",
                           "pool.log", "worker-X.log", "worker-cpu-2.txt"})
    std::ofstream(home.logs() / name) << "x\n";
  std::vector<std::string> ids;
  for (const LeftLog& log : list_logs(home)) {
    ids.push_back(log.id);
    EXPECT_LT(std::chrono::abs(std::chrono::system_clock::now() - log.last_written),
              std::chrono::hours(1));
  }
  EXPECT_THAT(ids, ElementsAre("worker-cpu-0", "worker-cuda-1"));
}

TEST(WorkerLog, SplitsNoLineBetweenFilesHoweverItComes) {
  const test::TempDir folder;
  {
    WorkerLog log(folder / "log", 16);
    for (const char* piece : {"on", "e\ntw", "o is longer\nthree", "\nfour"}) log.write(piece);
  }
  EXPECT_EQ(content(folder / "log.2"), "one\n");
  EXPECT_EQ(content(folder / "log.1"), "two is longer\n");
  EXPECT_EQ(content(folder / "log"), "three\nfour\n");
}

TEST(WorkerLog, BoundsALineWithoutAnEnd) {
  const test::TempDir folder;
  WorkerLog log(folder / "log", 1 << 20);
  for (int i = 0; i < 3; ++i) log.write(std::string(WorkerLog::kLineBytesMax / 2, 'x'));
  EXPECT_EQ(content(folder / "log").size(), WorkerLog::kLineBytesMax);
}

TEST(WorkerLog, AppendsToWhatIsThere) {
  const test::TempDir folder;
  { WorkerLog(folder / "log", 100).write_line("first"); }
  { WorkerLog(folder / "log", 100).write_line("second"); }
  EXPECT_EQ(content(folder / "log"), "first\nsecond\n");
  base::rotate_log(folder / "log");
  EXPECT_FALSE(std::filesystem::exists(folder / "log"));
  EXPECT_THAT(read_last_lines(folder / "log", 5), ElementsAre("first", "second"))
      << "the older file's";
}

TEST(WorkerLog, GoesOnWithoutAFile) {
  WorkerLog log("/nowhere/at/all/log", 100);
  log.write("lost\n");
  EXPECT_TRUE(read_last_lines("/nowhere/at/all/log", 5).empty());
}

TEST(WorkerLog, ReadsTheLastLinesAsPrintableText) {
  const test::TempDir folder;
  std::ofstream(folder / "log") << "one\ntwo\r\n\nbad \xff byte\n\x1b[31mred\nlast without end";
  const std::vector<std::string> lines = read_last_lines(folder / "log", 3);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2], "last without end");
  for (const std::string& line : lines) {
    EXPECT_TRUE(base::is_valid_utf8(line));
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
}

// A worker that failed at once showed the last words of an earlier one of its name.
TEST(WorkerLog, LinesOfAnEarlierRunAreNotItsOwn) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "w.log";
  WorkerLog(file, 1000).write_line("of the earlier one");
  base::rotate_log(file);
  const auto hour = std::chrono::hours(1);
  const auto now = std::chrono::system_clock::now();
  EXPECT_TRUE(read_last_lines(file, 5, now + hour).empty());
  WorkerLog(file, 1000).write_line("its own");
  EXPECT_EQ(read_last_lines(file, 5, now + hour), (std::vector<std::string>{"its own"}));
  EXPECT_EQ(read_last_lines(file, 5, now - hour).size(), 2U)
      << "what was moved on since it started is its own too";
}

}  // namespace
}  // namespace llorch::pool
