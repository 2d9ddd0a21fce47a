// What downloads left behind and nothing uses: finding it and removing it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "base/home.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::catalog {

enum class LeftoverKind : std::uint8_t {
  UnfinishedDownload,  // cut off, and not taken up again
  OldRevision,         // the catalog names a newer one, or none
  PartOfFile,          // of a file beside a model that is whole
  Package,             // an archive, or what was unpacked of one in part
  Hashes,              // of a model that is no longer in the catalog
};
inline constexpr base::EnumNames<LeftoverKind::Hashes> kLeftoverKinds("unfinished_download",
                                                                      "old_revision",
                                                                      "part_of_file", "package",
                                                                      "hashes");

struct Leftover {
  LeftoverKind kind = LeftoverKind::UnfinishedDownload;
  std::string model;           // the folder's name: the id it has or had
  std::filesystem::path path;  // removed with everything below it
  std::string ref;             // where it came from, where that is known
  std::int64_t bytes = 0;      // on the disk
};
template <class V, contract::Described<Leftover> T>
void describe(V& v, T& leftover) {
  v("kind", leftover.kind, {.names = kLeftoverKinds.words()});
  v("model", leftover.model);
  v("path", leftover.path);
  v("ref", leftover.ref);
  v("bytes", leftover.bytes);
}
std::int64_t total_bytes(const std::vector<Leftover>& leftovers);

// What lies in Home::models() and Home::chunks() and belongs to nothing: no entry of the catalog
// names it, nobody is downloading or mending it, and it is no model of `in_use` (ids that workers
// run). Folders that no download made are not looked into, links not followed.
Result<std::vector<Leftover>> find_leftovers(const base::Home& home,
                                             const std::vector<std::string>& in_use);

// Removes what find_leftovers finds now, each model's under the lock of its folder. Returns what is
// gone; what could not be removed is the error.
Result<std::vector<Leftover>> remove_leftovers(const base::Home& home,
                                               const std::vector<std::string>& in_use);

}  // namespace llorch::catalog
