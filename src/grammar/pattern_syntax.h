// The syntax of regular expressions. Private.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/pattern.h"

namespace llorch::grammar {

inline constexpr std::uint32_t kMaxScalar = 0x10FFFF;

using CharSet = std::vector<CharRange>;  // sorted, disjoint
CharSet normalized(CharSet set);
CharSet inverted(const CharSet& set);

// A tree; children lie before their parents.
struct PatternNode {
  enum class Kind : std::uint8_t { Chars, Sequence, Alternatives, Repeat };
  Kind kind = Kind::Sequence;
  CharSet chars;
  std::vector<std::size_t> children;
  std::uint32_t min = 0;  // Repeat
  std::uint32_t max = UINT32_MAX;
};

// One of the alternatives of a whole expression.
struct PatternBranch {
  struct Look {
    std::vector<PatternBranch> branches;
    bool is_negative = false;
  };
  bool at_start = false;  // begins with ^
  bool at_end = false;    // ends with $
  std::vector<Look> looks;
  std::size_t body = 0;  // a Sequence
};

struct ParsedPattern {
  std::vector<PatternNode> nodes;
  std::vector<PatternBranch> branches;
};

Result<ParsedPattern> parse_pattern(std::string_view pattern);

}  // namespace llorch::grammar
