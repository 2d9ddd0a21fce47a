// Taking a model's files out of a package, which is hostile input. Private to fetch/.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "fetch/choose_files.h"

namespace llorch::fetch {

// The regular files of a tar archive (gzip or not), their paths without the first part, as npm
// unpacks them. Links, devices and paths that climb are left out.
Result<std::vector<ListedFile>> list_tarball(const std::filesystem::path& archive,
                                             const std::stop_token& stop);

// Writes the chosen files below `folder`, which exists and is empty. Each must have the size it was
// listed with. Nothing is ever written elsewhere: the paths were checked, and no link is made.
Status unpack_tarball(const std::filesystem::path& archive, const ChosenFiles& chosen,
                      const std::filesystem::path& folder, const std::stop_token& stop);

}  // namespace llorch::fetch
