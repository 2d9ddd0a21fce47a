// Hashes of a file's chunks: how rot is found and mended piece by piece, and how neighbours prove
// to each other what they send.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace llorch::catalog {

inline constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;

struct FileChunks {
  std::string path;  // relative, as in ModelEntry::files
  std::int64_t size = 0;
  std::string sha256;               // of the whole file
  std::vector<std::string> chunks;  // sha256 of each kChunkBytes; the last may be shorter

  friend bool operator==(const FileChunks&, const FileChunks&) = default;
};

json::Object to_json(const FileChunks& file);
Result<FileChunks> parse_file_chunks(const json::Value& value);

// Bytes hashed so far; false gives up (Cancelled).
using HashProgress = std::function<bool(std::int64_t bytes)>;

// Reads the whole file once for both kinds of hash.
Result<FileChunks> hash_file(const std::filesystem::path& file, std::string relative_path,
                             const HashProgress& progress);

// The chunk hashes of one model, kept at FOLDER/<id>.json. NotFound when there are none.
Result<std::vector<FileChunks>> load_chunks(const std::filesystem::path& folder,
                                            std::string_view model_id);
Status save_chunks(const std::filesystem::path& folder, std::string_view model_id,
                   const std::vector<FileChunks>& files);
void remove_chunks(const std::filesystem::path& folder, std::string_view model_id);

}  // namespace llorch::catalog
