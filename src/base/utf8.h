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

// The text in double quotes for a message: quotes and backslashes escaped, control characters and
// ill-formed bytes as \xNN, at most kQuotedBytesMax of it and then "…". Always valid UTF-8. (fmt
// 9's own {:?} aborts on a cut sequence.)
inline constexpr std::size_t kQuotedBytesMax = 200;
std::string quoted(std::string_view text);

// The text as HTML shows it, within an element or an attribute: & < > " ' by their references.
std::string escape_html(std::string_view text);

// Unicode scalar values of valid UTF-8.
std::size_t count_scalars(std::string_view text);

}  // namespace llorch::base
