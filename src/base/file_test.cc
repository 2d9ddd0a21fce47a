#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
  std::ofstream(dir / "a").close();
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

// Memory of this process that belongs to files.
std::int64_t file_memory_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8));
  }
  return -1;
}

TEST(MappedFile, PagesComeWhenTouchedAndGoWhenForgotten) {
  const test::TempDir dir;
  constexpr std::int64_t kKib = 16 << 10;
  std::ofstream(dir / "a") << std::string(std::size_t{kKib} << 10, 'x') << "end";
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::int64_t before = file_memory_kib();
  touch_pages((*file)->bytes());
  const std::int64_t touched = file_memory_kib();
  EXPECT_GE(touched - before, kKib);
  (*file)->forget((*file)->bytes().subspan(100, 200));  // no whole page
  EXPECT_EQ(file_memory_kib(), touched);
  (*file)->forget((*file)->bytes());
  EXPECT_LT(file_memory_kib() - before, kKib / 2);
  EXPECT_EQ(text_of((*file)->bytes().last(4)), "xend") << "read again";

  const std::vector<std::byte> ours(1 << 20, std::byte{7});
  (*file)->forget(ours);
  EXPECT_EQ(ours[ours.size() / 2], std::byte{7}) << "not a part of the file: left alone";
  touch_pages({});
}

TEST(MappedFile, PartsAreReadAndACutFileIsAnError) {
  const test::TempDir dir;
  std::ofstream(dir / "a") << std::string(10000, 'x') << "middle" << std::string(10000, 'y');
  const auto file = MappedFile::open(dir / "a").take();
  std::vector<std::byte> into(8);
  const auto middle = file->bytes().subspan(10000, 6);
  EXPECT_TRUE(file->holds(middle));
  EXPECT_FALSE(file->holds(into)) << "other memory";
  EXPECT_FALSE(file->holds({}));
  ASSERT_TRUE(file->read(middle, into).ok());
  EXPECT_EQ(text_of(std::span(into).first(6)), "middle");
  std::filesystem::resize_file(dir / "a", 10002);
  const Status cut = file->read(middle, into);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::Unavailable);
  EXPECT_EQ(cut.error().message, (dir / "a").string() +
                                     " ends at byte 10002 of 20006: it was cut after it was "
                                     "opened; start again with the whole file");
  std::filesystem::resize_file(dir / "a", 5000);
  EXPECT_THAT(file->read(middle, into).error().message,
              ::testing::HasSubstr(" ends at byte 5000 of 20006: "));
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
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++entries;
  EXPECT_EQ(entries, 1);
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777U;
}

TEST(PrivateFiles, StateIsItsOwnersAlone) {
  const test::TempDir dir;
  ASSERT_TRUE(make_private_folder(dir / "a/b/c").ok());
  EXPECT_EQ(mode_of(dir / "a"), 0700U);
  EXPECT_EQ(mode_of(dir / "a/b/c"), 0700U);
  ASSERT_TRUE(write_file_atomically(dir / "a/state.json", "{}").ok());
  EXPECT_EQ(mode_of(dir / "a/state.json"), 0600U);
  ASSERT_TRUE((*AtomicFile::create(dir / "a/model.gguf", FileAccess::Everybody))->commit().ok());
  EXPECT_EQ(mode_of(dir / "a/model.gguf"), 0644U);
  EXPECT_FALSE(make_private_folder(dir / "a/state.json/x").ok());
  EXPECT_FALSE(make_private_folder(dir / "a/state.json").ok()) << "a file is no folder";
}

TEST(PrivateFiles, WhatWasOpenIsClosed) {
  const test::TempDir dir;
  std::ofstream(dir / "file") << "x";
  std::filesystem::create_directory(dir / "folder");
  ::chmod((dir / "file").c_str(), 0644);
  ::chmod((dir / "folder").c_str(), 0755);
  std::filesystem::create_symlink(dir / "file", dir / "link");
  make_private(dir / "link");
  EXPECT_EQ(mode_of(dir / "file"), 0644U) << "what a link leads to is somebody else's";
  make_private(dir / "file");
  make_private(dir / "folder");
  make_private(dir / "absent");
  EXPECT_EQ(mode_of(dir / "file"), 0600U);
  EXPECT_EQ(mode_of(dir / "folder"), 0700U);
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

// A limit on the size of files stands for a disk that is full: both end a write in its middle. The
// code is that of something that may pass, not of memory.
TEST(File, AFullDiskLeavesTheOldFileAndNoOther) {
  const test::TempDir dir;
  const std::filesystem::path file = dir / "state.json";
  ASSERT_TRUE(write_file_atomically(file, std::string_view("old")).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 10, .rlim_max = 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    const Status written = write_file_atomically(file, std::string_view("more than ten bytes"));
    const bool is_right = !written.ok() && written.error().code == ErrorCode::Unavailable &&
                          written.error().message.find("File too large") != std::string::npos;
    ::_exit(is_right ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_text_file(file, 100).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

}  // namespace
}  // namespace llorch::base
