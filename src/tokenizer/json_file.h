// A tokenizer.json as read: the two large members taken apart, the others as small JSON values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/added_tokens.h"

namespace llorch::tokenizer {

struct VocabEntry {
  std::string_view piece;
  std::int64_t id;
  double score;
};

// Views are into the text it was read from, which must outlive it, or into `arena`.
struct JsonFile {
  std::string arena;  // strings that were written with escapes; never reallocated
  std::vector<VocabEntry> vocab;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  json::Object model;  // without the two
  std::map<std::string, json::Value, std::less<>> members;

  JsonFile() = default;
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const json::Value& member(std::string_view name) const;  // null when absent
  std::string model_type() const;  // "BPE" also where an old file does not say it
};

Result<std::unique_ptr<const JsonFile>> read_json_file(std::string_view text);

// The value of `key`; false or empty when it is absent or of another type.
bool flag_of(const json::Object& object, std::string_view key);
std::string text_of(const json::Object& object, std::string_view key);

Result<std::vector<AddedToken>> read_added_tokens(const json::Value& value);

}  // namespace llorch::tokenizer
