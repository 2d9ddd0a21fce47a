// What the files at a path are: the facts of a catalog entry, read from the files themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "contract/model_entry.h"
#include "formats/weight_file.h"

namespace llorch::catalog {

// Fills format, size, architecture, context, vocabulary, quantisation, parameters, backends (or why
// there are none), the list of files, downloaded and path (absolute). Opens by mapping, so the cost
// does not follow the size. Files have no hashes, but those that the entry listed before and that
// are unchanged keep theirs. Leaves id, repo and revision alone, name and licence too unless they
// are empty. The entry is not changed when it fails.
Status describe_files(const std::filesystem::path& path, contract::ModelEntry& entry);

// The same from weights that are open already: everything but path, files, size and downloaded. The
// name stays empty when the file has none.
void describe_weights(const formats::WeightFile& weights, contract::ModelEntry& entry);

// What the paths of its files are relative to.
std::filesystem::path model_folder(const contract::ModelEntry& entry);

// How an entry's files stand on the disk, by size and time of change: no byte of them is read.
enum class FilesState : std::uint8_t {
  NotDownloaded,
  Ready,
  Changed,  // a file is not the one that was described: describe it again
  Missing,  // a file is gone
};
std::string_view name(FilesState state);  // "not_downloaded", "ready", "changed", "missing"
FilesState check_files(const contract::ModelEntry& entry);

}  // namespace llorch::catalog
