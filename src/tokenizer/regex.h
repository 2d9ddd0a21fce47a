// Expressions over UTF-8 text, as tokenizer files write them: the one front of PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/budget.h"

namespace llorch::tokenizer {

// Compiled and immutable; threads may share it.
class Regex {
 public:
  static Result<Regex> compile(std::string_view expression);

  // Calls on_match(begin, end) for each match from left to right; matches may be empty. `text` must
  // be valid UTF-8. Ends early, and with a failure that names the expression, when the budget is
  // spent: it is asked at each step within a match too.
  Status for_each_match(std::string_view text, EncodeBudget& budget,
                        const std::function<void(std::size_t, std::size_t)>& on_match) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace llorch::tokenizer
