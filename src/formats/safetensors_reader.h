// SafeTensors → WeightFile. The header is read and checked whole; tensors stay mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// One file. Its "__metadata__" becomes "safetensors.KEY" metadata.
Result<WeightFile> read_safetensors(const std::filesystem::path& path);

// All shards of a "model.safetensors.index.json"; where shards differ in "__metadata__", the first
// counts.
Result<WeightFile> read_safetensors_index(const std::filesystem::path& index_path);

// One file image in memory, which must outlive the result.
Result<WeightFile> parse_safetensors(std::span<const std::byte> image);

}  // namespace llorch::formats
