// Rewrites text before it is cut into words: the normalizers that tokenizer files name, in their
// order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/budget.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/regex.h"

namespace llorch::tokenizer {

struct NormalizeStep {
  enum class Kind : std::uint8_t {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,    // Bert: drops non-spacing marks
    StripMarks,      // drops all marks
    Strip,           // white space at the ends
    Prepend,         // `content` in front of text that is not empty
    Replace,         // `pattern`, or each match of `regex`, by `content`
    CleanText,       // Bert: control characters go, white space becomes a space
    SpaceChinese,    // Bert: spaces around CJK ideographs
    Charsmap,        // SentencePiece's own table
    CollapseSpaces,  // SentencePiece: one space for many, none at the ends
  };
  Kind kind = Kind::Nfc;
  std::string pattern, content;
  std::optional<Regex> regex;
  bool strips_left = true, strips_right = true;
  std::optional<Charsmap> charsmap;
  bool by_grapheme =
      false;  // Charsmap: as the Rust library does it, whole graphemes or single characters
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizeStep> steps) : steps_(std::move(steps)) {}

  bool is_identity() const { return steps_.empty(); }
  // `text` and the result are valid UTF-8. Fails when the budget is spent or the text grows beyond
  // what it allows.
  Result<std::string> apply(std::string_view text, EncodeBudget& budget) const;

 private:
  std::vector<NormalizeStep> steps_;
};

}  // namespace llorch::tokenizer
