// UTF-8 facts about text that may come from anywhere: files, requests, other programs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llorch::base {

// Well-formed as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view text);

// The same text where it is valid; each ill-formed byte becomes U+FFFD. What goes into JSON from a
// file or a path passes through here.
std::string to_valid_utf8(std::string_view text);

// Unicode scalar values of valid UTF-8.
std::size_t count_scalars(std::string_view text);

}  // namespace llorch::base
