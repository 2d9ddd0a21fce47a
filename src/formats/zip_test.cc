#include "formats/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using ::testing::HasSubstr;

std::string u16(std::uint64_t value) {
  return {static_cast<char>(value & 0xff), static_cast<char>(value >> 8 & 0xff)};
}
std::string u32(std::uint64_t value) {
  return u16(value & 0xffff) + u16(value >> 16 & 0xffff);
}
std::string u64(std::uint64_t value) {
  return u32(value & 0xffffffff) + u32(value >> 32);
}

// What a member says of itself, right by default and wrong where a test wants it.
struct TestMember {
  std::string name;
  std::string content;
  std::string local_name = name;
  std::uint64_t method = 0;
  std::uint64_t flags = 0;
  std::int64_t size_delta = 0;       // added to both sizes in the directory
  std::int64_t header_at_delta = 0;  // added to the place of the local header
  bool zip64 = false;                // sizes and place in a zip64 extra field
};

std::string local_header(const TestMember& member) {
  const std::string padding = "FB" + u16(3) + "ZZZ";
  // Sizes are 0, as streaming writers leave them: the directory has them.
  return "PK\x03\x04" + u16(0) + u16(member.flags) + u16(member.method) + u32(0) + u32(0) + u32(0) +
         u32(0) + u16(member.local_name.size()) + u16(padding.size()) + member.local_name + padding;
}

std::string central_header(const TestMember& member, std::uint64_t header_at) {
  const std::uint64_t size = member.content.size() + static_cast<std::uint64_t>(member.size_delta);
  const std::uint64_t at = header_at + static_cast<std::uint64_t>(member.header_at_delta);
  const std::string extra = member.zip64 ? u16(1) + u16(24) + u64(size) + u64(size) + u64(at) : "";
  const std::uint64_t full = 0xffffffff;
  return "PK\x01\x02" + u16(0) + u16(0) + u16(member.flags) + u16(member.method) + u32(0) + u32(0) +
         u32(member.zip64 ? full : size) + u32(member.zip64 ? full : size) +
         u16(member.name.size()) + u16(extra.size()) + u16(0) + u16(0) + u16(0) + u32(0) +
         u32(member.zip64 ? full : at) + member.name + extra;
}

struct TestArchive {
  std::vector<TestMember> members;
  std::int64_t entries_delta = 0;
  std::int64_t directory_at_delta = 0;
  std::uint64_t disk = 0;
  std::string comment = {};

  std::string bytes() const {
    std::string data;
    std::string directory;
    for (const TestMember& member : members) {
      directory += central_header(member, data.size());
      data += local_header(member) + member.content;
    }
    const std::uint64_t entries = members.size() + static_cast<std::uint64_t>(entries_delta);
    const std::uint64_t directory_at = data.size() + static_cast<std::uint64_t>(directory_at_delta);
    return data + directory + "PK\x05\x06" + u16(disk) + u16(disk) + u16(entries) + u16(entries) +
           u32(directory.size()) + u32(directory_at) + u16(comment.size()) + comment;
  }
};

Result<ZipMembers> read(const std::string& archive) {
  return read_zip(std::as_bytes(std::span(archive)));
}

std::string message_of(const TestArchive& archive) {
  const std::string bytes = archive.bytes();
  const Result<ZipMembers> members = read(bytes);
  return members.ok() ? "accepted" : members.error().message;
}

TEST(Zip, ViewsStoredMembersInPlace) {
  const TestArchive archive{
      .members = {{.name = "a/one", .content = "first"},
                  {.name = "a/", .content = ""},
                  {.name = "two", .content = ""},
                  {.name = "three", .content = "PK\x05\x06 inside", .zip64 = true}},
      .comment = "PK\x05\x06 not an end record, there is no room for one"};
  const std::string bytes = archive.bytes();
  const Result<ZipMembers> members = read(bytes);
  ASSERT_TRUE(members.ok()) << members.error().message;
  ASSERT_EQ(members->size(), 3U) << "a folder is no member";
  const std::span<const std::byte> one = members->at("a/one");
  EXPECT_EQ(reinterpret_cast<const char*>(one.data()) - bytes.data(),
            static_cast<std::ptrdiff_t>(bytes.find("first")));
  EXPECT_EQ(one.size(), 5U);
  EXPECT_EQ(members->at("two").size(), 0U);
  EXPECT_EQ(members->at("three").size(), 11U);
}

TEST(Zip, ReadsAnEmptyArchive) {
  EXPECT_EQ(message_of({}), "accepted");
}

TEST(Zip, RefusesWhatIsNotPlainAndNamesIt) {
  const TestMember good{.name = "good", .content = "xyz"};
  EXPECT_THAT(message_of({.members = {good, {.name = "packed", .content = "q", .method = 8}}}),
              HasSubstr("\"packed\" is compressed"));
  EXPECT_THAT(message_of({.members = {good, {.name = "secret", .content = "q", .flags = 1}}}),
              HasSubstr("\"secret\" is encrypted"));
  EXPECT_THAT(message_of({.members = {good, good}}), HasSubstr("\"good\" occurs twice"));
  EXPECT_THAT(message_of({.members = {{.name = "in", .content = "q", .local_name = "on"}}}),
              HasSubstr("\"in\": its header at 0 disagrees"));
  EXPECT_THAT(message_of({.members = {good}, .disk = 1}), HasSubstr("one part of several"));
}

TEST(Zip, RefusesMembersOutsideTheArchive) {
  for (const bool zip64 : {false, true}) {
    EXPECT_THAT(
        message_of(
            {.members = {{.name = "long", .content = "q", .size_delta = 1, .zip64 = zip64}}}),
        HasSubstr("reach beyond"));
    EXPECT_THAT(message_of({.members = {{.name = "far",
                                         .content = "q",
                                         .header_at_delta = 1000,
                                         .zip64 = zip64}}}),
                HasSubstr("outside"));
  }
  EXPECT_THAT(
      message_of({.members = {{.name = "huge", .content = "q", .size_delta = -2, .zip64 = true}}}),
      HasSubstr("reach beyond"));
  EXPECT_THAT(
      message_of(
          {.members = {{.name = "minus", .content = "q", .header_at_delta = -1, .zip64 = true}}}),
      HasSubstr("outside"));
}

TEST(Zip, RefusesOverlappingMembers) {
  // The first member claims the whole of the second, which is really there.
  const TestMember second{.name = "b", .content = "second"};
  const auto reach = static_cast<std::int64_t>(local_header(second).size() + second.content.size());
  EXPECT_THAT(
      message_of({.members = {{.name = "a", .content = "first", .size_delta = reach}, second}}),
      HasSubstr("\"a\" and \"b\" overlap"));
}

TEST(Zip, RefusesABrokenDirectory) {
  const TestMember good{.name = "good", .content = "xyz"};
  EXPECT_THAT(message_of({.members = {good}, .entries_delta = 1}), HasSubstr("do not fit"));
  EXPECT_THAT(message_of({.members = {good}, .entries_delta = -1}), HasSubstr("behind the last"));
  EXPECT_THAT(message_of({.members = {good}, .directory_at_delta = 1}), HasSubstr("outside"));
  EXPECT_THAT(message_of({.members = {good}, .directory_at_delta = -1}),
              HasSubstr("no directory entry"));
}

TEST(Zip, RefusesEveryTruncation) {
  const std::string whole = TestArchive{.members = {{.name = "a", .content = "first"}}}.bytes();
  ASSERT_TRUE(read(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read(whole.substr(0, size)).ok()) << size;
  }
}

TEST(Zip, ReadsMembersBeyondFourGigabytes) {
  // A sparse file: the big member is a hole, the one behind it begins where 32 bits no longer
  // reach.
  constexpr std::uint64_t kBigBytes = (std::uint64_t{5} << 30) + 3;
  const TestMember big{.name = "big",
                       .content = "",
                       .size_delta = static_cast<std::int64_t>(kBigBytes),
                       .zip64 = true};
  const TestMember after{.name = "after", .content = "behind", .zip64 = true};
  const std::uint64_t after_at = local_header(big).size() + kBigBytes;
  const std::string after_data = local_header(after) + after.content;
  const std::string directory = central_header(big, 0) + central_header(after, after_at);
  const std::uint64_t directory_at = after_at + after_data.size();
  const std::string wide_end = "PK\x06\x06" + u64(44) + u16(0) + u16(45) + u32(0) + u32(0) +
                               u64(2) + u64(2) + u64(directory.size()) + u64(directory_at);
  const std::string locator = "PK\x06\x07" + u32(0) + u64(directory_at + directory.size()) + u32(1);
  const std::string end = "PK\x05\x06" + u16(0) + u16(0) + u16(0xffff) + u16(0xffff) +
                          u32(0xffffffff) + u32(0xffffffff) + u16(0);
  const test::TempDir dir;
  {
    std::ofstream out(dir / "big.zip", std::ios::binary);
    out << local_header(big);
    out.seekp(static_cast<std::streamoff>(after_at));
    out << after_data << directory << wide_end << locator << end;
  }
  const auto file = base::MappedFile::open(dir / "big.zip");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Result<ZipMembers> members = read_zip((*file)->bytes());
  ASSERT_TRUE(members.ok()) << members.error().message;
  EXPECT_EQ(members->at("big").size(), kBigBytes);
  ASSERT_EQ(members->at("after").size(), 6U);
  EXPECT_EQ(members->at("after")[0], std::byte{'b'});
}

}  // namespace
}  // namespace llorch::formats
