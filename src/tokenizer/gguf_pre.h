// GGUF's "tokenizer.ggml.pre": a name that stands for the rules that cut text before byte-pair
// merges.
#pragma once

#include <string_view>
#include <vector>

namespace llorch::tokenizer {

struct GgufPre {
  std::vector<std::string_view> expressions;  // applied one after the other, matches isolated
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
  bool composes = false;  // Unicode NFC first
};

// Null for a name we do not know.
const GgufPre* find_gguf_pre(std::string_view name);

// The name that stands for exactly these rules (`adds_bos` apart), empty when none does.
std::string_view find_gguf_pre_name(const GgufPre& rules);

// The expressions of all names, each once. They are known to take time in proportion to any text.
std::vector<std::string_view> published_expressions();

}  // namespace llorch::tokenizer
