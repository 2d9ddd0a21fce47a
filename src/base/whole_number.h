// Whole numbers as people write them, for checks of command lines: what reads the text afterwards
// may take a number that is too large for the largest there is.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "base/utf8.h"

namespace llorch::base {

// Empty where `text` is a number from 0 to 2^64 - 1, in digits alone; else what is wrong with it.
inline std::string check_whole_number(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && at == end) return {};
  return fmt::format("expected a whole number from 0 to {}, found {}",
                     std::numeric_limits<std::uint64_t>::max(), base::quoted(text));
}

}  // namespace llorch::base
