#include "base/header_text.h"

#include <algorithm>

#include "base/ascii.h"

namespace llorch::base {

bool is_json_type(std::string_view content_type) {
  constexpr std::string_view kJson = "application/json";
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return std::equal(type.begin(), type.end(), kJson.begin(), kJson.end(),
                    [](char a, char b) { return ascii_lower(a) == b; });
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  });
}

}  // namespace llorch::base
