#include "formats/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "formats/byte_cursor.h"

namespace llorch::formats {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
constexpr std::uint32_t kZip64LocatorSignature = 0x07064b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kZip64EndBytes = 56;
constexpr std::size_t kZip64LocatorBytes = 20;
constexpr std::size_t kCommentBytesMax = 0xffff;
constexpr std::uint16_t kZip64ExtraId = 1;
constexpr std::uint16_t kEncryptedFlag = 1;
constexpr std::uint16_t kFull16 = 0xffff;
constexpr std::uint32_t kFull32 = 0xffffffff;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "zip: " + std::move(message)};
}

// A field at a fixed place of a record whose size has been checked.
template <class T>
T field(Bytes record, std::size_t offset) {
  T value;
  std::memcpy(&value, record.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Where the directory lies, from the records at the end of the archive.
struct Directory {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t entries;
};

// The last place where an end record can stand: its comment reaches exactly to the end of the
// archive.
std::optional<std::size_t> find_end_record(Bytes archive) {
  if (archive.size() < kEndBytes) return std::nullopt;
  const std::size_t last = archive.size() - kEndBytes;
  const std::size_t first = last - std::min(last, kCommentBytesMax);
  for (std::size_t at = last + 1; at-- > first;) {
    const Bytes record = archive.subspan(at, kEndBytes);
    if (field<std::uint32_t>(record, 0) == kEndSignature &&
        field<std::uint16_t>(record, 20) == last - at) {
      return at;
    }
  }
  return std::nullopt;
}

Result<Directory> read_zip64_end(Bytes archive, std::size_t locator_at) {
  const Bytes locator = archive.subspan(locator_at, kZip64LocatorBytes);
  const auto at = field<std::uint64_t>(locator, 8);
  if (at > locator_at || locator_at - at < kZip64EndBytes) {
    return corrupt(fmt::format("the zip64 end record at {} does not fit before its locator at {}",
                               at, locator_at));
  }
  const Bytes record = archive.subspan(at, kZip64EndBytes);
  if (field<std::uint32_t>(record, 0) != kZip64EndSignature) {
    return corrupt(fmt::format("no zip64 end record at {}, where the locator points", at));
  }
  if (field<std::uint32_t>(locator, 4) != 0 || field<std::uint32_t>(record, 16) != 0 ||
      field<std::uint32_t>(record, 20) != 0) {
    return corrupt("the archive is one part of several");
  }
  return Directory{field<std::uint64_t>(record, 48), field<std::uint64_t>(record, 40),
                   field<std::uint64_t>(record, 32)};
}

Result<Directory> find_directory(Bytes archive) {
  const std::optional<std::size_t> end_at = find_end_record(archive);
  if (!end_at) return corrupt("no end record; the file is cut short or not a zip archive");
  const Bytes end = archive.subspan(*end_at, kEndBytes);
  if (field<std::uint16_t>(end, 4) != 0 || field<std::uint16_t>(end, 6) != 0) {
    return corrupt("the archive is one part of several");
  }
  Directory directory{field<std::uint32_t>(end, 16), field<std::uint32_t>(end, 12),
                      field<std::uint16_t>(end, 10)};
  if (*end_at >= kZip64LocatorBytes &&
      field<std::uint32_t>(archive.subspan(*end_at - kZip64LocatorBytes), 0) ==
          kZip64LocatorSignature) {
    Result<Directory> wide = read_zip64_end(archive, *end_at - kZip64LocatorBytes);
    if (!wide.ok()) return wide.error();
    // Where the old record holds a number rather than "see zip64", both must say the same.
    const bool agree = (directory.offset == kFull32 || directory.offset == wide->offset) &&
                       (directory.bytes == kFull32 || directory.bytes == wide->bytes) &&
                       (directory.entries == kFull16 || directory.entries == wide->entries);
    if (!agree) return corrupt("the two end records disagree");
    directory = *wide;
  }
  if (directory.offset > *end_at || directory.bytes > *end_at - directory.offset) {
    return corrupt(fmt::format(
        "the directory ({} bytes at {}) lies outside the {} bytes before the end record",
        directory.bytes, directory.offset, *end_at));
  }
  if (directory.entries > directory.bytes / kCentralBytes) {
    return corrupt(fmt::format("{} members do not fit in a directory of {} bytes",
                               directory.entries, directory.bytes));
  }
  return directory;
}

struct Member {
  std::string_view name;
  std::uint64_t header_at;
  std::uint64_t size;
  Bytes bytes;  // set once the local header is read
};

// Replaces the fields that say "see zip64", in the order the extra field lists them.
Status apply_zip64_extra(Bytes extra, std::uint64_t& size, std::uint64_t& packed_size,
                         std::uint64_t& header_at, std::string_view name) {
  const bool wanted = size == kFull32 || packed_size == kFull32 || header_at == kFull32;
  if (!wanted) return ok_status();
  ByteCursor cursor(extra);
  while (cursor.remaining() > 0) {
    const auto id = cursor.read<std::uint16_t>();
    const auto length = cursor.read<std::uint16_t>();
    const auto body = length ? cursor.take(*length) : std::nullopt;
    if (!id || !body) break;
    if (*id != kZip64ExtraId) continue;
    ByteCursor wide(*body);
    for (std::uint64_t* value : {&size, &packed_size, &header_at}) {
      if (*value != kFull32) continue;
      const auto number = wide.read<std::uint64_t>();
      if (!number)
        return corrupt(fmt::format("{}: its zip64 field is too short", base::quoted(name)));
      *value = *number;
    }
    return ok_status();
  }
  return corrupt(fmt::format("{}: its zip64 field is missing", base::quoted(name)));
}

Result<Member> read_central(ByteCursor& cursor) {
  const auto record = cursor.take(kCentralBytes);
  if (!record || field<std::uint32_t>(*record, 0) != kCentralSignature) {
    return corrupt(
        fmt::format("no directory entry at byte {} of the directory", cursor.position()));
  }
  const auto name_bytes = cursor.take(field<std::uint16_t>(*record, 28));
  const auto extra = name_bytes ? cursor.take(field<std::uint16_t>(*record, 30)) : std::nullopt;
  const auto comment = extra ? cursor.take(field<std::uint16_t>(*record, 32)) : std::nullopt;
  if (!comment) return corrupt("a directory entry is cut short");
  const std::string_view name = as_text(*name_bytes);
  if ((field<std::uint16_t>(*record, 8) & kEncryptedFlag) != 0) {
    return Error{ErrorCode::Unsupported, fmt::format("zip: {} is encrypted", base::quoted(name))};
  }
  if (const auto method = field<std::uint16_t>(*record, 10); method != 0) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("zip: {} is compressed (method {}); only stored members can be mapped, "
                    "save the archive again without compression",
                    base::quoted(name), method)};
  }
  std::uint64_t size = field<std::uint32_t>(*record, 24);
  std::uint64_t packed_size = field<std::uint32_t>(*record, 20);
  std::uint64_t header_at = field<std::uint32_t>(*record, 42);
  if (Status wide = apply_zip64_extra(*extra, size, packed_size, header_at, name); !wide.ok())
    return wide.error();
  if (size != packed_size) {
    return corrupt(fmt::format("{} is stored, yet its sizes differ: {} and {}", base::quoted(name),
                               size, packed_size));
  }
  return Member{name, header_at, size, {}};
}

// Finds the member's bytes behind its local header, all before `limit`, where the directory begins.
Status locate(Bytes archive, std::uint64_t limit, Member& member) {
  if (member.header_at > limit || limit - member.header_at < kLocalBytes) {
    return corrupt(fmt::format("{}: its header at {} lies outside the archive",
                               base::quoted(member.name), member.header_at));
  }
  const Bytes header = archive.subspan(member.header_at, kLocalBytes);
  const std::uint64_t names_at = member.header_at + kLocalBytes;
  const std::size_t name_length = field<std::uint16_t>(header, 26);
  const std::uint64_t data_at = names_at + name_length + field<std::uint16_t>(header, 28);
  if (field<std::uint32_t>(header, 0) != kLocalSignature || data_at > limit) {
    return corrupt(
        fmt::format("{}: no whole header at {}", base::quoted(member.name), member.header_at));
  }
  if (as_text(archive.subspan(names_at, name_length)) != member.name ||
      field<std::uint16_t>(header, 8) != 0) {
    return corrupt(fmt::format("{}: its header at {} disagrees with the directory",
                               base::quoted(member.name), member.header_at));
  }
  if (member.size > limit - data_at) {
    return corrupt(fmt::format("{}: {} bytes at {} reach beyond the archive's data of {} bytes",
                               base::quoted(member.name), member.size, data_at, limit));
  }
  member.bytes = archive.subspan(data_at, member.size);
  return ok_status();
}

Status check_no_overlap(std::vector<Member>& members, Bytes archive) {
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.header_at < b.header_at; });
  for (std::size_t i = 1; i < members.size(); ++i) {
    const Member& before = members[i - 1];
    const auto before_end =
        static_cast<std::uint64_t>(before.bytes.data() - archive.data()) + before.size;
    if (members[i].header_at < before_end) {
      return corrupt(fmt::format("{} and {} overlap", base::quoted(before.name),
                                 base::quoted(members[i].name)));
    }
  }
  return ok_status();
}

}  // namespace

Result<ZipMembers> read_zip(Bytes archive) {
  Result<Directory> directory = find_directory(archive);
  if (!directory.ok()) return directory.error();
  ByteCursor cursor(archive.subspan(directory->offset, directory->bytes));
  std::vector<Member> members;
  members.reserve(directory->entries);
  for (std::uint64_t i = 0; i < directory->entries; ++i) {
    Result<Member> member = read_central(cursor);
    if (!member.ok()) return member.error();
    if (Status found = locate(archive, directory->offset, *member); !found.ok())
      return found.error();
    members.push_back(*member);
  }
  if (cursor.remaining() != 0) {
    return corrupt(fmt::format("{} bytes behind the last of {} directory entries",
                               cursor.remaining(), directory->entries));
  }
  if (Status apart = check_no_overlap(members, archive); !apart.ok()) return apart.error();
  ZipMembers result;
  for (const Member& member : members) {
    if (member.name.ends_with('/')) continue;
    if (!result.emplace(member.name, member.bytes).second) {
      return corrupt(fmt::format("{} occurs twice", base::quoted(member.name)));
    }
  }
  return result;
}

}  // namespace llorch::formats
