// SentencePiece's compiled normalization rules ("precompiled_charsmap"): a double-array trie of
// character sequences and the texts that replace them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::tokenizer {

class Charsmap {
 public:
  // The bytes as model files carry them; Corrupt when lengths do not fit.
  static Result<Charsmap> parse(std::string_view bytes);

  struct Replacement {
    std::size_t matched = 0;  // bytes of text; 0 when no rule applies
    std::string_view content;
  };
  // The rule with the longest match at the start of `text`.
  Replacement longest_match(std::string_view text) const;

  // Stops where the result is longer than `max_bytes`.
  std::string apply(std::string_view text, std::size_t max_bytes) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string contents_;  // NUL-terminated texts
};

}  // namespace llorch::tokenizer
