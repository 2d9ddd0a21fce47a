// Letters of ASCII, whatever the locale says.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace llorch::base {

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string ascii_lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return ascii_lower(c); });
  return result;
}

}  // namespace llorch::base
