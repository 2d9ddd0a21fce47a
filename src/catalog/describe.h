// What the files at a path are: the facts of a catalog entry, read from the files themselves.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/positioned_file.h"
#include "base/result.h"
#include "contract/model_entry.h"
#include "formats/weight_file.h"

namespace llorch::catalog {

// Fills format, size, architecture, context, vocabulary, quantisation, parameters, backends (or why
// there are none), the list of files, downloaded and path (absolute). A confined child looks into
// them (look.h) by mapping, so the cost does not follow the size. Files have no hashes, but those
// that the entry listed before and that are unchanged keep theirs. Leaves id, repo and revision
// alone, name and licence too unless they are empty. The entry is not changed when it fails.
Status describe_files(const std::filesystem::path& path, contract::ModelEntry& entry);

// The same from weights that are open already: everything but path, files, size and downloaded. The
// name stays empty when the file has none.
void describe_weights(const formats::WeightFile& weights, contract::ModelEntry& entry);

// The facts of the files at an absolute path, read by this very process: only for one that may end
// with them (look.h). Of `files` the relative paths alone.
Result<contract::ModelEntry> read_facts(const std::filesystem::path& path);
// What lies beside weights in Hugging Face layout and is part of the model.
std::vector<std::string_view> side_file_names();

// What the paths of its files are relative to.
std::filesystem::path model_folder(const contract::ModelEntry& entry);

// How an entry's files stand on the disk, by size, times and inode: no byte of them is read.
enum class FilesState : std::uint8_t {
  NotDownloaded,
  Ready,
  Changed,  // a file is not the one that was described or verified
  Damaged,  // as it was when the last check found other bytes in it
  Missing,  // a file is gone
};
// Their names, and what a model may be beside them.
inline constexpr std::array<std::string_view, 7> kModelStates = {
    "not_downloaded", "ready", "changed", "damaged", "missing", "unsupported", "downloading"};
std::string_view name(FilesState state);
FilesState check_files(const contract::ModelEntry& entry);
// Whether the file is the one that the entry knows; what the entry does not know is not compared.
bool is_as_noted(const contract::ModelFile& file, const base::FileStamp& stamp);

// Takes what the file is like now into the entry's list.
void note_stamp(const base::FileStamp& stamp, contract::ModelFile& file);

// How a model stands, for people and programs: the name of its files' state, or "unsupported" where
// they are ready and nothing here runs them.
std::string_view state_of(const contract::ModelEntry& entry);

}  // namespace llorch::catalog
