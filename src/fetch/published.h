// What a source published of a file's content, and whether bytes are that. Pure.
#pragma once

#include <optional>
#include <string>

#include "fetch/prefix_hasher.h"
#include "fetch/source.h"

namespace llorch::fetch {

// What the bytes of two calls must share to be put together. Empty: nothing says so.
std::string identity_of(const RemoteFile& file);

// Whether anything but the connection vouches for the content.
bool is_checked(const RemoteFile& file);

struct Mismatch {
  std::string expected;  // "sha256 4f…"
  std::string found;
};
// The first hash that is not the published one; hashes that were not published are not looked at.
std::optional<Mismatch> find_mismatch(const RemoteFile& file, const WholeHashes& hashes);

// The hashes beside SHA-256 that find_mismatch needs.
PrefixHasher::Wanted wanted_hashes(const RemoteFile& file);

}  // namespace llorch::fetch
