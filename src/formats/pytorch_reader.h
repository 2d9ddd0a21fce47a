// PyTorch checkpoints (.bin, .pt, .pth as torch.save writes them since 1.6: a zip archive with a
// pickle) → WeightFile. Nothing in the pickle is ever run; tensors are views over the archive's
// stored bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// One file. The pickle holds a dict of tensors; dicts inside it become dotted names ("model.w").
// Values that are no tensors (step counters, settings) are not weights and are left out. Views keep
// their strides.
Result<WeightFile> read_pytorch(const std::filesystem::path& path);

// All shards of a "pytorch_model.bin.index.json".
Result<WeightFile> read_pytorch_index(const std::filesystem::path& index_path);

// One file image in memory, which must outlive the result.
Result<WeightFile> parse_pytorch(std::span<const std::byte> image);

}  // namespace llorch::formats
