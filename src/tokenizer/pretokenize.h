// Cuts text into the words that the model then encodes one by one: the expressions and rules that
// tokenizer files name, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/budget.h"
#include "tokenizer/regex.h"

namespace llorch::tokenizer {

// GPT-2's expression, and the newer one of tiktoken that Llama 3 (1 to 3 digits) and Qwen 2 (1
// digit) use.
inline constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What becomes of a match between two stretches of other text.
enum class SplitBehavior : std::uint8_t {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous
};

enum class PrependScheme : std::uint8_t { Always, First, Never };

// One rule. Use the make_ functions: they pick the fields that belong together.
struct SplitRule {
  enum class Kind : std::uint8_t {
    Gpt2,         // kGpt2Expression by hand
    Tiktoken,     // kLlama3Expression or kQwen2Expression by hand
    Expression,   // any expression, with a behavior
    Digits,       // numbers, one character each or in runs
    Punctuation,  // ASCII and Unicode punctuation, with a behavior
    Whitespace,   // white space goes, what is between stays
    Metaspace,    // spaces become "▁"
    PrefixSpace,  // a space in front of text that has none
  };
  Kind kind = Kind::Gpt2;
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool inverted = false;
  bool is_individual = false;  // Digits
  std::size_t max_digits = 3;  // Tiktoken
  std::optional<Regex> regex;  // Expression
  std::string replacement;     // Metaspace: "▁" or what the file says
  PrependScheme prepend = PrependScheme::Never;
  bool splits = false;  // Metaspace: each "▁" starts a word
};

// The rule for an expression that every match of which becomes a word of its own, by hand where we
// have it so (measured 3 to 4 times as fast as PCRE2's compiled code).
Result<SplitRule> make_expression_rule(std::string_view expression,
                                       SplitBehavior behavior = SplitBehavior::Isolated,
                                       bool inverted = false);
// The same, always through PCRE2: the oracle of the hand-written ones.
Result<SplitRule> make_regex_rule(std::string_view expression, SplitBehavior behavior,
                                  bool inverted);

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view word) = 0;  // never empty; valid only during the call
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<SplitRule> rules) : rules_(std::move(rules)) {}

  // `text` is valid UTF-8; `is_first` says that it starts the whole input. Without rules the text
  // is one word.
  // Fails when the budget is spent.
  Status split(std::string_view text, bool is_first, EncodeBudget& budget, WordSink& sink) const;

 private:
  class Splitter;

  std::vector<SplitRule> rules_;
};

// The end of the word that starts at `begin` < text.size(), by hand.
std::size_t next_gpt2_word(std::string_view text, std::size_t begin);
std::size_t next_tiktoken_word(std::string_view text, std::size_t begin, std::size_t max_digits);

}  // namespace llorch::tokenizer
