// What the files at a path are: the facts of a catalog entry, read from the files themselves.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

// Fills format, size, architecture, context, vocabulary, quantisation, parameters, backends (or why
// there are none), the list of files (sizes, no hashes), downloaded and path (absolute). Opens by
// mapping, so the cost does not follow the size. Leaves id, name, repo, revision and licence alone,
// but gives an empty name the file's own. The entry is not changed when it fails.
Status describe_files(const std::filesystem::path& path, contract::ModelEntry& entry);

}  // namespace llorch::catalog
