// Finds stop strings in a text that arrives in pieces, across their borders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::tokenizer {

// Text goes out as soon as it can no longer be the start of a stop string; of several stop strings
// the one that ends first counts, and of those the longest. What is held is at most the longest
// stop string less one byte, and never part of a character. One generation each; belongs to one
// thread.
class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;  // certain not to be part of a stop string
    bool is_stopped =
        false;  // a stop string is complete: `text` ends in front of it, later pieces are ignored
    std::string stop;  // which
  };
  // `piece` is valid UTF-8.
  Output add(std::string_view piece);
  // The text is over: what was held is ordinary text.
  std::string flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> fallback;  // Knuth-Morris-Pratt: longest border of each prefix
    std::size_t matched = 0;              // bytes of it that end the text so far
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace llorch::tokenizer
