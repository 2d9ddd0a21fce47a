#include "base/file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/test_paths.h"

namespace llorch::base {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const test::TempDir dir;
  std::ofstream(dir / "a") << "hello";
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(text_of((*file)->bytes()), "hello");
}

TEST(MappedFile, AnEmptyFileIsAnEmptySpan) {
  const test::TempDir dir;
  std::ofstream(dir / "a");
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(MappedFile, SaysWhyItCannotOpen) {
  const test::TempDir dir;
  const auto absent = MappedFile::open(dir / "none");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_NE(absent.error().message.find("none"), std::string::npos);
  const auto folder = MappedFile::open(dir.path());
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos);
}

TEST(ReadTextFile, RefusesMoreThanTheLimit) {
  const test::TempDir dir;
  std::ofstream(dir / "a") << "12345";
  EXPECT_EQ(read_text_file(dir / "a", 5).take(), "12345");
  const auto refused = read_text_file(dir / "a", 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::TooLarge);
}

TEST(WriteFileAtomically, ReplacesTheWholeFileAndLeavesNothingElse) {
  const test::TempDir dir;
  ASSERT_TRUE(write_file_atomically(dir / "a", std::string_view("first, and longer")).ok());
  ASSERT_TRUE(write_file_atomically(dir / "a", std::string_view("second")).ok());
  EXPECT_EQ(read_text_file(dir / "a", 100).take(), "second");
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++entries;
  EXPECT_EQ(entries, 1);
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNothingElse) {
  const test::TempDir dir;
  ASSERT_TRUE(write_file_atomically(dir / "a", std::string_view("old")).ok());
  {
    const auto file = AtomicFile::create(dir / "a").take();
    ASSERT_TRUE(file->write(std::as_bytes(std::span("half"))).ok());
  }
  EXPECT_EQ(read_text_file(dir / "a", 100).take(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(AtomicFile, PiecesBecomeTheFileAtCommit) {
  const test::TempDir dir;
  const auto file = AtomicFile::create(dir / "a").take();
  for (const std::string_view piece : {"one ", "", "two"}) {
    ASSERT_TRUE(file->write(std::as_bytes(std::span(piece))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(read_text_file(dir / "a", 100).take(), "one two");
}

TEST(RemoveAbandonedWrites, TakesOnlyWhatAKilledWriterLeft) {
  const test::TempDir dir;
  ASSERT_TRUE(write_file_atomically(dir / "a", std::string_view("content")).ok());
  const auto killed = AtomicFile::create(dir / "a").take();
  for (const char* name : {"a.x1Y2z3.tmp", "a.backup", "a.lock", "a.x1Y-z3.tmp", "a.x1Y2z34.tmp",
                           "ab.x1Y2z3.tmp", "x1Y2z3.tmp"}) {
    std::ofstream(dir / name) << "x";
  }
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 9);
  remove_abandoned_writes(dir / "a");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.x1Y2z3.tmp"));
  EXPECT_TRUE(std::filesystem::exists(dir / "a.backup"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 7);
}

TEST(WriteFileAtomically, NamesTheFileItCannotWrite) {
  const test::TempDir dir;
  const Status failed = write_file_atomically(dir / "no/such/folder", std::string_view("x"));
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace llorch::base
