// One weight file, or many named by an index ("model.safetensors.index.json"), read by a format's
// own function. Private to formats/.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// Adds the tensors and facts of one file's image, whose memory the WeightFile keeps, to `into`.
using AddImage = Status (*)(std::span<const std::byte> image, WeightFile& into);

Result<WeightFile> read_single(FileFormat format, const std::filesystem::path& path, AddImage add);

// The index is {"weight_map": {tensor: file name, …}, …}. Each shard lies beside it and is opened
// once, in the order of names. What the index says and what the shards hold must be the same: a
// tensor missing from its shard, or one in a shard that the index does not place there, is an error
// that names it.
Result<WeightFile> read_sharded(FileFormat format, const std::filesystem::path& index_path,
                                AddImage add);

}  // namespace llorch::formats
