// Regular expressions of JSON Schema's "pattern" as deterministic automata over code points.
// Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::grammar {

// The bounds of one expression.
inline constexpr std::size_t kMaxPatternBytes = 4'000;
inline constexpr std::size_t kMaxPatternDepth = 50;      // groups within each other
inline constexpr std::size_t kMaxPatternParts = 20'000;  // once repetitions are written out
inline constexpr std::size_t kMaxPatternStates = 4'000;
inline constexpr std::size_t kMaxPatternWork = 20'000'000;  // steps of all constructions

// Both ends included.
struct CharRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  bool operator==(const CharRange&) const = default;
};

// Every state can be finished; the first is where a text begins.
struct PatternAutomaton {
  struct Step {
    CharRange chars;
    std::uint32_t target = 0;
  };
  struct State {
    std::vector<Step> steps;  // disjoint, in order
    bool is_final = false;
  };
  std::vector<State> states;
};

struct PatternLength {
  std::uint32_t min = 0;
  std::uint32_t max = UINT32_MAX;
};

// The texts of `length` characters in which `pattern` (ECMA-262) finds a match. Supported:
// characters, classes, escapes, groups, alternatives, quantifiers, `^` and `$` at the ends of the
// expression's alternatives, lookahead right after such a `^`. Unsupported for the rest,
// InvalidArgument for what is no expression and where no text matches, TooLarge beyond the bounds.
// `work` counts on: many expressions have kMaxPatternWork together.
Result<PatternAutomaton> compile_pattern(std::string_view pattern, PatternLength length,
                                         std::size_t& work);

}  // namespace llorch::grammar
