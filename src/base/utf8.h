// Is it UTF-8? One answer for names and texts that come from outside.
#pragma once

#include <string_view>

namespace llorch::base {

// Whole and valid: no overlong forms, no surrogates, nothing beyond U+10FFFF, nothing cut short.
bool is_utf8(std::string_view text);

}  // namespace llorch::base
