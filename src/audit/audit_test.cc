#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "audit/audit_chain.h"
#include "audit/audit_files.h"
#include "audit/audit_log.h"
#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::audit {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr, ::testing::IsEmpty;

class Audit : public ::testing::Test {
 protected:
  LogOptions options() {
    LogOptions options;
    options.folder = folder_.path();
    options.anchor = anchor_;
    options.keep_anchor = [this](const Anchor& anchor) {
      anchor_ = anchor;
      return ok_status();
    };
    return options;
  }
  std::unique_ptr<AuditLog> open(std::int64_t file_bytes = 1 << 20, std::size_t old_files = 8) {
    LogOptions wanted = options();
    wanted.file_bytes = file_bytes;
    wanted.old_files = old_files;
    auto log = AuditLog::open(std::move(wanted));
    EXPECT_TRUE(log.ok()) << log.error().message;
    return log.ok() ? log.take() : nullptr;
  }
  void write(AuditLog& log, int count) {
    for (int i = 0; i < count; ++i) {
      const Status written =
          log.append({.actor = "local", .action = "key.add", .object = fmt::format("k{}", i)});
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
  }
  fs::path file() const { return current_file(folder_.path()); }
  std::string text() const { return *base::read_text_file(file(), 1 << 24); }
  void replace(const std::string& text) { std::ofstream(file(), std::ios::trunc) << text; }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    const Status read = for_each_line(folder_.path(), [&all](const RawLine& line) {
      all.emplace_back(line.text);
      return true;
    });
    EXPECT_TRUE(read.ok());
    return all;
  }
  void replace_lines(const std::vector<std::string>& all) {
    std::string joined;
    for (const std::string& one : all) joined += one + "\n";
    replace(joined);
  }
  std::string problem() {
    const Result<Verdict> verdict = verify(folder_.path(), anchor_);
    EXPECT_TRUE(verdict.ok());
    return verdict.ok() ? verdict->problem : "unreadable";
  }

  const test::TempDir folder_;
  std::optional<Anchor> anchor_;  // the store
};

TEST_F(Audit, AChainIsWholeAcrossStarts) {
  write(*open(), 3);
  write(*open(), 2);
  const Result<Verdict> verdict = verify(folder_.path(), anchor_);
  ASSERT_TRUE(verdict.ok());
  EXPECT_THAT(verdict->problem, IsEmpty());
  EXPECT_EQ(verdict->num_lines, 5U);
  EXPECT_EQ(verdict->head, anchor_->head);
  EXPECT_EQ(verdict->head.seq, 5U);
  struct stat facts {};
  ASSERT_EQ(::stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
}

TEST_F(Audit, EveryFlippedByteIsFound) {
  write(*open(), 3);
  const std::string good = text();
  const std::string first = good.substr(0, good.find('\n') + 1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    replace(bad);
    const std::string found = problem();
    ASSERT_FALSE(found.empty()) << "byte " << at;
    if (at < first.size() - 1) {
      ASSERT_THAT(found, HasSubstr("line 1:")) << "byte " << at;
    }
  }
}

TEST_F(Audit, LinesThatAreRemovedSwappedOrAddedAreFound) {
  write(*open(), 5);
  const std::vector<std::string> good = lines();
  std::vector<std::string> bad = good;
  bad.erase(bad.begin() + 2);
  replace_lines(bad);
  EXPECT_THAT(problem(), HasSubstr("line 3: lines 3 to 3 before it are missing"));
  bad = good;
  std::swap(bad[1], bad[2]);
  replace_lines(bad);
  EXPECT_THAT(problem(), HasSubstr("line 2:"));
  bad = good;
  bad.insert(bad.begin() + 1, good[0]);
  replace_lines(bad);
  EXPECT_THAT(problem(), HasSubstr("line 2: it has the number 1 where 2 was expected"));
  bad = good;
  bad.erase(bad.begin());
  replace_lines(bad);
  EXPECT_THAT(problem(), HasSubstr("line 1: lines 1 to 1 before it are missing"));
  bad = good;
  bad.resize(3);
  replace_lines(bad);
  EXPECT_THAT(problem(), HasSubstr("the end is missing: lines 4 to 5"));
  fs::remove(file());
  EXPECT_THAT(problem(), HasSubstr("the end is missing: lines 1 to 5"));
  replace_lines(good);
  EXPECT_THAT(problem(), IsEmpty());
}

TEST_F(Audit, AnEndThatWasWrittenAnewIsNotTheOneOfTheStore) {
  write(*open(), 3);
  const std::vector<std::string> good = lines();
  Head head;
  std::string forged = write_line({.actor = "local", .action = "nothing"}, {}, head);
  forged += write_line({.actor = "local", .action = "nothing"}, {}, head);
  forged += write_line({.actor = "local", .action = "nothing"}, {}, head);
  replace(forged);
  EXPECT_THAT(problem(), HasSubstr("another line 3 than the one that the store knows"));
}

TEST_F(Audit, ACutEndStaysVisibleAfterTheNextStart) {
  write(*open(), 5);
  std::vector<std::string> bad = lines();
  bad.resize(3);
  replace_lines(bad);
  write(*open(), 1);
  EXPECT_THAT(lines()[3], HasSubstr("audit.gap"));
  EXPECT_THAT(lines()[3], HasSubstr("lines 4 to 5 were written and are not here"));
  EXPECT_THAT(problem(), HasSubstr("line 4: lines 4 to 5 before it are missing"));
  fs::remove(file());
  write(*open(), 1);
  EXPECT_THAT(problem(), HasSubstr("before it are missing"));
}

TEST_F(Audit, AFileThatIsReplacedWhileItIsWrittenShows) {
  const auto log = open();
  write(*log, 3);
  std::vector<std::string> bad = lines();
  bad.erase(bad.begin() + 1);
  fs::remove(file());
  replace_lines(bad);
  write(*log, 1);
  EXPECT_EQ(lines().size(), 3U) << "what comes goes where it is looked for";
  EXPECT_THAT(problem(), HasSubstr("line 2: lines 2 to 2 before it are missing"));
}

TEST_F(Audit, AnUnfinishedLineIsNamedAndRepaired) {
  write(*open(), 2);
  const std::string good = text();
  Head head = anchor_->head;
  const std::string next = write_line({.actor = "local", .action = "key.add"}, {}, head);
  const Anchor before = *anchor_;
  for (std::size_t bytes = 1; bytes < next.size(); bytes += 7) {
    anchor_ = before;
    replace(good + next.substr(0, bytes));
    ASSERT_THAT(problem(), HasSubstr("line 3: it is unfinished"));
    write(*open(), 1);
    ASSERT_THAT(problem(), IsEmpty()) << bytes;
    ASSERT_THAT(lines()[2], HasSubstr("audit.repaired"));
    ASSERT_THAT(lines()[2], HasSubstr(fmt::format("of {} bytes", bytes)));
    ASSERT_EQ(lines().size(), 4U);
  }
  // A line that was on the disk but not yet known to the store is part of the chain.
  anchor_ = before;
  replace(good + next);
  EXPECT_THAT(problem(), IsEmpty());
  write(*open(), 1);
  EXPECT_THAT(problem(), IsEmpty());
  EXPECT_EQ(lines().size(), 4U);
}

TEST_F(Audit, AnUnfinishedLineThatTheStoreKnowsWasCut) {
  write(*open(), 3);
  const std::string good = text();
  replace(good.substr(0, good.size() - 10));
  write(*open(), 1);
  EXPECT_THAT(problem(), HasSubstr("lines 3 to 3 before it are missing"));
}

TEST_F(Audit, TheChainGoesOnAcrossFilesAndTheOldestGo) {
  {
    const auto log = open(2000, 3);
    write(*log, 60);
  }
  std::vector<fs::path> files = list_files(folder_.path());
  EXPECT_EQ(files.size(), 4U);
  EXPECT_GT(anchor_->oldest, 1U);
  EXPECT_THAT(problem(), IsEmpty());
  write(*open(2000, 3), 1);
  EXPECT_THAT(problem(), IsEmpty());
  files = list_files(folder_.path());
  fs::rename(files[1], folder_ / "elsewhere");
  EXPECT_THAT(problem(), HasSubstr("before it are missing"));
  fs::rename(folder_ / "elsewhere", files[1]);
  fs::remove(files[0]);
  EXPECT_THAT(problem(), HasSubstr("before it are missing"));
}

TEST_F(Audit, ManyThreadsMakeOneChain) {
  {
    const auto log = open(4000, 100);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { write(*log, 25); });
  }
  EXPECT_THAT(problem(), IsEmpty());
  EXPECT_EQ(lines().size(), 200U);
}

TEST_F(Audit, StrangersCannotFillTheDisk) {
  {
    const auto log = open();
    for (int i = 0; i < 10'000; ++i)
      log->note_refusal("token:1a2b3c", "/v2/keys/llk_0123456789abcdef_secret", "UNAUTHORIZED");
  }
  EXPECT_EQ(lines().size(), 20U);
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(problem(), IsEmpty());
}

TEST_F(Audit, FieldsAreBoundedAndEscaped) {
  const auto log = open();
  ASSERT_TRUE(log->append({.actor = std::string(5000, 'a'), .action = "x\n\"y\xff"}).ok());
  EXPECT_LT(text().size(), 1000U);
  EXPECT_EQ(lines().size(), 1U);
  EXPECT_THAT(problem(), IsEmpty());
}

TEST(AuditChain, AnchorsAreReadAsTheyWereWritten) {
  const Anchor anchor{{12, std::string(64, 'a')}, 3};
  const std::optional<Anchor> read = anchor_from_text(to_text(anchor));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->head, anchor.head);
  EXPECT_EQ(read->oldest, 3U);
  for (const char* bad : {"", "1", "x y z", "1 aaaa 2", "1  "}) EXPECT_FALSE(anchor_from_text(bad));
}

}  // namespace
}  // namespace llorch::audit
