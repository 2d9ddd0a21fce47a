// Python's str on UTF-8: code points, character classes, case, search, split. Knows nothing of
// templates. Every function runs in time linear in its input (times a logarithm for character
// sets).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::jinja::text {

inline constexpr std::size_t kNotFound = static_cast<std::size_t>(-1);

bool is_valid_utf8(std::string_view text);

struct Decoded {
  char32_t code;
  std::size_t bytes;  // at least 1, also for a byte that is no UTF-8
};
Decoded decode(std::string_view text, std::size_t at);  // at < text.size()
void append(std::string& out, char32_t code);

std::size_t length(std::string_view text);  // code points
// The byte position of a code point; text.size() when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t code_points);

bool is_space(char32_t code);
bool is_printable(char32_t code);
bool is_alpha(char32_t code);
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
// str.isupper and str.islower: at least one cased character, none of the other case.
bool all_upper(std::string_view text);
bool all_lower(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

// Where `needle` first (last) begins, in bytes.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t rfind(std::string_view text, std::string_view needle);
std::size_t count(std::string_view text, std::string_view needle);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::size_t max_count);

enum class Side { Left, Right, Both };
// Without `chars`: whitespace.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);

// Without `separator`: runs of whitespace, no empty parts. `separator` is not empty.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator,
                                    std::size_t max_splits);
std::vector<std::string_view> rsplit(std::string_view text,
                                     std::optional<std::string_view> separator,
                                     std::size_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace llorch::jinja::text
