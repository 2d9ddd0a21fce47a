// GGUF (version 2 and 3, little-endian) → WeightFile. Hides the byte layout and the split-file
// naming. The header is walked once and checked against the file's size; arrays and tensors stay
// mapped, untouched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// PATH is a whole file or any part of a split one ("NAME-00002-of-00003.gguf"): then all parts,
// which must lie beside it, become one WeightFile with the first part's metadata.
Result<WeightFile> read_gguf(const std::filesystem::path& path);

// One file image in memory, which must outlive the result; a part of a split file stays a part.
// `name` stands where a file has its path.
Result<WeightFile> parse_gguf(std::span<const std::byte> image, std::string_view name = {});

}  // namespace llorch::formats
