// Expressions over UTF-8 text, as tokenizer files write them: the one front of PCRE2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/budget.h"

namespace llorch::tokenizer {

// Compiled and immutable; threads may share it.
class Regex {
 public:
  // Unknown expressions may take time without end on some text and are watched at each step, which
  // costs a fifth to a third of an encoding's speed; Linear ones are known not to.
  enum class Effort : std::uint8_t { Unknown, Linear };
  static Result<Regex> compile(std::string_view expression, Effort effort = Effort::Unknown);

  // Calls on_match(begin, end) for each match from left to right; matches may be empty. `text` must
  // be valid UTF-8. Ends early, and with a failure that names the expression, when the budget is
  // spent: it is asked between matches and, for expressions of unknown effort, at each step within.
  Status for_each_match(std::string_view text, EncodeBudget& budget,
                        const std::function<void(std::size_t, std::size_t)>& on_match) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace llorch::tokenizer
