// config.json and its like → Metadata: nested objects as dotted keys.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "formats/metadata.h"

namespace llorch::formats {

// Adds every value of a JSON object under "PREFIX.key.subkey". Arrays of one kind (integers,
// numbers, strings, booleans) become one ArrayView: I64 (or U64), F64, String, Bool; an empty array
// is I64 of count 0. Other arrays are flattened by position ("PREFIX.x.0.y"). null is noted
// and otherwise counts as absent (Metadata::is_null).
Status add_json_metadata(std::string_view text, std::string_view prefix, Metadata& metadata);

// The same from a file of at most 16 MB; the error names the file.
Status read_json_metadata(const std::filesystem::path& path, std::string_view prefix,
                          Metadata& metadata);

}  // namespace llorch::formats
