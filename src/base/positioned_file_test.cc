#include "base/positioned_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <string>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(PositionedFile, ReadsWhereItIsToldAndLessOnlyAtTheEnd) {
  const test::TempDir folder;
  ASSERT_TRUE(write_file_atomically(folder / "a", std::string_view("0123456789")).ok());
  auto file = PositionedFile::open(folder / "a");
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::array<std::byte, 4> buffer{};
  EXPECT_EQ((*file)->read_at(3, buffer).take(), 4U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer.data()), 4), "3456");
  EXPECT_EQ((*file)->read_at(8, buffer).take(), 2U);
  EXPECT_EQ((*file)->read_at(10, buffer).take(), 0U);
  EXPECT_EQ((*file)->read_at(1000, buffer).take(), 0U);
  EXPECT_EQ((*file)->stamp().take().size, 10);
  EXPECT_FALSE((*file)->write_at(0, bytes_of("x")).ok()) << "it was opened for reading";
}

TEST(PositionedFile, WritesInPlaceAndTheStampTells) {
  const test::TempDir folder;
  ASSERT_TRUE(write_file_atomically(folder / "a", std::string_view("0123456789")).ok());
  std::filesystem::last_write_time(folder / "a", std::filesystem::file_time_type{});
  auto file = PositionedFile::open(folder / "a", PositionedFile::Mode::ReadWrite);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const FileStamp before = (*file)->stamp().take();
  ASSERT_TRUE((*file)->write_at(2, bytes_of("ab")).ok());
  ASSERT_TRUE((*file)->sync().ok());
  EXPECT_EQ(read_text_file(folder / "a", 100).take(), "01ab456789");
  EXPECT_NE((*file)->stamp().take(), before);
}

TEST(PositionedFile, RefusesWhatIsNoFileAndMakesNone) {
  const test::TempDir folder;
  EXPECT_EQ(PositionedFile::open(folder / "none").error().code, ErrorCode::NotFound);
  EXPECT_EQ(PositionedFile::open(folder / "none", PositionedFile::Mode::ReadWrite).error().code,
            ErrorCode::NotFound);
  EXPECT_EQ(PositionedFile::open(folder.path()).error().code, ErrorCode::InvalidArgument);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(PositionedFile::open(folder / "pipe").error().code, ErrorCode::InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

}  // namespace
}  // namespace llorch::base
