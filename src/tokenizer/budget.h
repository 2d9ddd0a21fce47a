// What encoding one text may cost. Tokenizer files are hostile input: an expression, a piece or a
// replacement can make the work per character as large as they like, and this ends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_limit.h"

namespace llorch::tokenizer {

// Sticky: once spent it stays spent, whoever works returns early, and what was made is thrown away.
// Belongs to one call of encode.
class EncodeBudget {
 public:
  // Steps for a text of this size (real tokenizers take some tens for each byte), and time.
  explicit EncodeBudget(std::size_t text_bytes, base::WorkLimit limit = {});

  // A step is about a byte looked at or a call made: some nanoseconds. False when nothing is left.
  bool spend(std::size_t steps) {
    steps_ += steps;
    return steps_ < next_check_ || check();
  }
  bool is_spent() const { return is_spent_; }
  // The text that is worked on may not grow beyond this, in bytes.
  std::size_t max_bytes() const { return max_bytes_; }

  // An expression of the file is at work from here on: a failure names it. Empty: none.
  void blame(std::string_view expression) { expression_ = expression; }
  // Gives up for a reason of its own.
  void fail(std::string_view why);

  Status status() const;

 private:
  bool check();

  const std::uint64_t max_steps_;
  const std::size_t max_bytes_;
  const base::WorkLimit limit_;
  std::uint64_t steps_ = 0;
  std::uint64_t next_check_ = 0;
  bool is_spent_ = false;
  std::string_view expression_;
  std::optional<Error> error_;
};

}  // namespace llorch::tokenizer
