// Tokens that are found in text as they stand, before any other rule: <|im_start|> and its kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/types.h"

namespace llorch::tokenizer {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool is_special = false;     // found only when the caller allows it
  bool is_normalized = false;  // found in normalized text, and normalized itself
  bool single_word = false;    // not inside a word
  bool strips_left = false;    // takes the white space before it
  bool strips_right = false;   // and after it
};

// Finds the leftmost and, of those, longest token. Immutable after the last add().
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();
  // `content` as it is looked for; of equal ones the first counts. Not empty.
  void add(std::string_view content, std::size_t token_index);
  bool empty() const { return nodes_.size() == 1; }

  struct Found {
    std::size_t begin = 0, end = 0;
    std::size_t token_index = 0;
    bool ok = false;
  };
  Found find(std::string_view text, std::size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // sorted by byte
    std::int32_t token_index = -1;
  };
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;  // 0 when there is none

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
};

struct Segment {
  std::string_view text;  // the stretch itself; for a token including what it strips
  std::size_t token_index = 0;
  bool is_token = false;
};

// Cuts `text` at the tokens of `matcher`; special ones only when `allows_special`.
std::vector<Segment> cut_at_tokens(const AddedTokenMatcher& matcher,
                                   const std::vector<AddedToken>& tokens, std::string_view text,
                                   bool allows_special);

}  // namespace llorch::tokenizer
