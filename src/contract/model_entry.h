// One model as the catalog knows it: the shape of catalog.json and of the pool's model answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::contract {

// A file of a model. The paths of an entry's files are relative to the folder that
// `ModelEntry::path` is in (a single file) or is (a folder); they never climb out of it.
struct ModelFile {
  std::string path;
  std::int64_t size = 0;
  std::string sha256;  // 64 hex digits; empty: not hashed yet (a file that was registered in place)
  // As it was when it was read, or when its hash was last seen to be right: another value means
  // that somebody replaced or changed it. 0: not known, not compared.
  std::int64_t modified_ms = 0;  // since 1970
  std::int64_t changed_ns = 0;   // of its inode, since 1970
  std::int64_t inode = 0;
  bool damaged = false;  // its bytes were last seen to be others

  friend bool operator==(const ModelFile&, const ModelFile&) = default;
};

// What is absent is not known yet: a model that was never downloaded has the facts of its source
// only, and everything read from the files is read again when they change.
struct ModelEntry {
  std::string id;    // 1..128 of [A-Za-z0-9._-], begins with a letter or digit
  std::string name;  // for people
  std::string
      path;  // what a worker's --model takes: a file, a folder or "builtin"; empty: not here
  std::string format;  // "gguf", "safetensors", "pytorch"; empty: not known yet
  std::int64_t size_bytes =
      0;                     // of all its files; "size_gb" on the wire, and "size_bytes" beside it
  std::string architecture;  // as the file spells it
  bool downloaded = false;   // whole and here
  std::vector<std::string> backends;  // what can run it: "cpu", "cuda"; empty: nothing here can

  // "metadata" on the wire.
  std::string repo;  // a model_ref to fetch it from ("hf:org/repo::file=x.gguf"); empty: only here
  std::optional<std::int64_t> context_length;
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> parameters;
  std::string quantization;
  std::string license;
  std::string unsupported;  // why no backend runs it; empty when one does or nobody has looked

  std::string revision;  // the commit, version or ETag that was fetched
  std::vector<ModelFile> files;
  std::string updated_at;  // RFC 3339, UTC

  // What a newer program wrote beside these, there and in "metadata": kept when we rewrite it.
  json::Object unknown;
  json::Object unknown_metadata;

  friend bool operator==(const ModelEntry&, const ModelEntry&) = default;
};

// The model that every worker has: its id, and what stands for its path.
inline constexpr std::string_view kBuiltinModel = "builtin";

bool is_model_id(std::string_view text);

// "a/b.gguf": UTF-8 that stays below the folder it is joined to, without "." and ".." among its
// parts, control characters and backslashes; at most 1024 bytes.
bool is_relative_file_path(std::string_view text);

json::Object to_json(const ModelEntry& entry);
// Only the id is required, fields it does not know are kept: older and newer programs' catalogs
// keep working. Without "size_bytes" the size is that of "size_gb". Corrupt; `what` names the
// entry.
Result<ModelEntry> parse_model_entry(const json::Value& value, std::string_view what);
template <>
json::Object schema_of<ModelEntry>();

}  // namespace llorch::contract
