#include "formats/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace llorch::formats
