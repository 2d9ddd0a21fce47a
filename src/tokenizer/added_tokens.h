// Tokens that are found in text as they stand, before any other rule: <|im_start|> and its kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_span.h"
#include "tokenizer/budget.h"
#include "tokenizer/types.h"

namespace llorch::tokenizer {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool is_special = false;     // found only when the caller allows it
  bool is_control = false;     // structures a conversation: found only in a template's own text
  bool is_normalized = false;  // found in normalized text, and normalized itself
  bool single_word = false;    // not inside a word
  bool strips_left = false;    // takes the white space before it
  bool strips_right = false;   // and after it
};

// Where tokens that mean something to the model are taken for what they are.
class TokenZones {
 public:
  static TokenZones everywhere() { return TokenZones(Kind::Everywhere, {}); }
  // Special ones nowhere; other added tokens are as good as words.
  static TokenZones nowhere() { return TokenZones(Kind::Nowhere, {}); }
  // Control tokens wholly within one of `spans` (sorted, apart), which must outlive the object.
  static TokenZones only_in(std::span<const base::TextSpan> spans) {
    return TokenZones(Kind::Spans, spans);
  }
  bool has_spans() const { return kind_ == Kind::Spans; }
  bool allows(const AddedToken& token, std::size_t begin, std::size_t end) const;

 private:
  enum class Kind : std::uint8_t { Everywhere, Nowhere, Spans };
  TokenZones(Kind kind, std::span<const base::TextSpan> spans) : kind_(kind), spans_(spans) {}

  Kind kind_;
  std::span<const base::TextSpan> spans_;
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
  // None, once the budget is spent.
  Found find(std::string_view text, std::size_t from, EncodeBudget& budget) const;
  // Of the tokens that `accepts` takes: one that it refuses hides no other.
  using Filter = std::function<bool(const Found&)>;
  Found find(std::string_view text, std::size_t from, EncodeBudget& budget,
             const Filter& accepts) const;
  // Every token that stands at `begin`, from the shortest to the longest. Returns how many bytes it
  // looked at.
  template <class OnToken>
  std::size_t match_at(std::string_view text, std::size_t begin, const OnToken& on_token) const {
    std::uint32_t node = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      node = child(node, static_cast<std::uint8_t>(text[i]));
      if (node == 0) return i + 1 - begin;
      if (nodes_[node].token_index >= 0)
        on_token(Found{begin, i + 1, static_cast<std::size_t>(nodes_[node].token_index), true});
    }
    return text.size() - begin;
  }

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

// Cuts `text` at the tokens of `matcher` that `zones` allow.
std::vector<Segment> cut_at_tokens(const AddedTokenMatcher& matcher,
                                   const std::vector<AddedToken>& tokens, std::string_view text,
                                   const TokenZones& zones, EncodeBudget& budget);

// The same with another way to find the next token from a position on.
using TokenFinder = std::function<AddedTokenMatcher::Found(std::string_view, std::size_t)>;
std::vector<Segment> cut_at_found(const TokenFinder& find, const std::vector<AddedToken>& tokens,
                                  std::string_view text);

// Sets is_control: special tokens, those that look like "<|…|>", and those that look like "<…>" or
// "[…]" and that one of the model's own chat templates writes or looks for. All others (runs of
// spaces, words, HTML's tags) are pieces of ordinary text.
void mark_control_tokens(std::vector<AddedToken>& tokens,
                         std::span<const std::pair<std::string, std::string>> chat_templates);

}  // namespace llorch::tokenizer
