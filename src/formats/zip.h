// The members of a zip archive as views over its bytes. Reads the central directory (zip64 too);
// knows stored members only, because a compressed one has no bytes to view.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string_view>

#include "base/result.h"

namespace llorch::formats {

// Name → stored bytes; both point into the archive.
using ZipMembers = std::map<std::string_view, std::span<const std::byte>>;

// Refuses, naming the member where there is one: compressed or encrypted members, names that occur
// twice, members that overlap each other or lie outside the archive, local headers that disagree
// with the directory, archives in several parts. A folder's own entry (name ending in '/') is no
// member.
Result<ZipMembers> read_zip(std::span<const std::byte> archive);

}  // namespace llorch::formats
