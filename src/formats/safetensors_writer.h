// Tensors → one SafeTensors file.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// Writes `tensors` (strided ones gathered) and `metadata` ("__metadata__") to `path`, atomically.
// Wider element types come first, so that every tensor is aligned to its type. Refuses ggml block
// types, which the format lacks, names that occur twice and the name "__metadata__".
Status write_safetensors(const std::filesystem::path& path, std::span<const WeightTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace llorch::formats
