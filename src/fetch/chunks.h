// Hashes of a file's chunks: how rot is found and mended piece by piece, and how neighbours prove
// to each other what they send.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/positioned_file.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::fetch {

inline constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;

struct FileChunks {
  std::string path;  // relative, as in ModelEntry::files
  std::int64_t size = 0;
  std::string sha256;  // of the whole file
  // Of the file when it was hashed, in nanoseconds since 1970; 0: not noted. A file with another
  // time may have other bytes.
  std::int64_t modified_ns = 0;
  std::int64_t chunk_bytes = kChunkBytes;
  std::vector<std::string> chunks;  // sha256 of each chunk_bytes; the last may be shorter

  friend bool operator==(const FileChunks&, const FileChunks&) = default;
};

template <class V, contract::Described<FileChunks> T>
void describe(V& v, T& file) {
  v("path", file.path);
  v("size", file.size);
  v("sha256", file.sha256);
  v("modified_ns", file.modified_ns);
  v("chunk_bytes", file.chunk_bytes);
  v("chunks", file.chunks);
}
// Hostile input: paths that leave the folder, sizes that do not fit the number of chunks and
// anything that is not a hash are refused.
Result<FileChunks> parse_file_chunks(const json::Value& value);
// A whole list of them, no path twice. `what` names it in errors.
Result<std::vector<FileChunks>> parse_chunk_list(const json::Value& value, std::string_view what);

// 64 lower-case hex digits.
bool is_sha256_hex(std::string_view text);
// How many chunks a file of that size has; an empty file has none.
std::int64_t count_chunks(std::int64_t size, std::int64_t chunk_bytes);

// Bytes hashed so far; false gives up (Cancelled).
using HashProgress = std::function<bool(std::int64_t bytes)>;

// Reads the whole file once for both kinds of hash; they are computed on two threads. Conflict when
// the file is written to meanwhile.
Result<FileChunks> hash_file(const base::PositionedFile& source, std::string relative_path,
                             const HashProgress& progress, std::int64_t chunk_bytes = kChunkBytes);
Result<FileChunks> hash_file(const std::filesystem::path& file, std::string relative_path,
                             const HashProgress& progress, std::int64_t chunk_bytes = kChunkBytes);

// The indices of the chunks that are not what `expected` says, in order. Reads on several threads;
// `progress` is called on the caller's. The file has the expected size. Conflict when it is written
// to meanwhile.
Result<std::vector<std::size_t>> find_rotted_chunks(const base::PositionedFile& file,
                                                    const FileChunks& expected,
                                                    const HashProgress& progress);

// The chunk hashes of one model, kept at FOLDER/<id>.json. NotFound when there are none, Corrupt
// when the file is damaged.
Result<std::vector<FileChunks>> load_chunks(const std::filesystem::path& folder,
                                            std::string_view model_id);
// Makes the folder when it is not there.
Status save_chunks(const std::filesystem::path& folder, std::string_view model_id,
                   const std::vector<FileChunks>& files);
void remove_chunks(const std::filesystem::path& folder, std::string_view model_id);

}  // namespace llorch::fetch
