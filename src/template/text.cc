#include "template/text.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace llorch::jinja::text {
namespace {

struct CharRange {
  char32_t first, last;
  std::uint8_t stride;
};
struct SpecialCase {
  char32_t code;
  char32_t mapped[3];  // zero-padded
};

#include "template/unicode_tables.inc"

template <std::size_t N>
bool contains(const CharRange (&table)[N], char32_t code) {
  const auto* range = std::lower_bound(std::begin(table), std::end(table), code,
                                       [](const CharRange& r, char32_t c) { return r.last < c; });
  return range != std::end(table) && code >= range->first &&
         (code - range->first) % range->stride == 0;
}

template <std::size_t N>
bool append_special(const SpecialCase (&table)[N], char32_t code, std::string& out) {
  const auto* entry = std::lower_bound(std::begin(table), std::end(table), code,
                                       [](const SpecialCase& s, char32_t c) { return s.code < c; });
  if (entry == std::end(table) || entry->code != code) return false;
  for (const char32_t mapped : entry->mapped) {
    if (mapped != 0) append(out, mapped);
  }
  return true;
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_upper_char(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU || contains(kOtherUpper, code);
}
bool is_lower_char(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || contains(kOtherLower, code);
}
bool is_title_char(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LT;
}

void append_upper(std::string& out, char32_t code) {
  if (!append_special(kSpecialUpper, code, out))
    append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

void append_title(std::string& out, char32_t code) {
  if (!append_special(kSpecialTitle, code, out)) append_upper(out, code);
}

bool is_cased(char32_t code) {
  return is_upper_char(code) || is_lower_char(code) || is_title_char(code);
}

// The start of the code point that ends before `end`.
std::size_t previous(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

// A capital sigma at the end of a word has its own small letter.
char32_t lower_sigma(std::string_view text, std::size_t at) {
  const bool cased_before = at > 0 && is_cased(decode(text, previous(text, at)).code);
  const std::size_t after = at + 2;
  const bool cased_after = after < text.size() && is_cased(decode(text, after).code);
  return cased_before && !cased_after ? U'\u03c2' : U'\u03c3';
}

void append_lower(std::string& out, std::string_view text, std::size_t at, char32_t code) {
  if (code == U'\u03a3') {
    append(out, lower_sigma(text, at));
  } else if (!append_special(kSpecialLower, code, out)) {
    append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const Decoded decoded = decode(text, at);
    if (decoded.bytes == 1) return false;
    at += decoded.bytes;
  }
  return true;
}

Decoded decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < bytes) return {0xFFFD, 1};
  char32_t code = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {0xFFFD, 1};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[bytes] || code > 0x10FFFF || surrogate) return {0xFFFD, 1};
  return {code, bytes};
}

void append(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::size_t length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::size_t byte_offset(std::string_view text, std::size_t code_points) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) continue;
    if (code_points == 0) break;
    --code_points;
  }
  return at;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == U' ';
    default:
      return true;
  }
}

bool is_alpha(char32_t code) {
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t code) {
  return contains(kDigit, code);
}
bool is_numeric(char32_t code) {
  return contains(kNumeric, code);
}

namespace {

// Whether there is a character of the case and none of another.
template <class IsOf, class IsOther>
bool is_all(std::string_view text, const IsOf& is_of, const IsOther& is_other) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = decode(text, at);
    if (is_other(code) || is_title_char(code)) return false;
    any = any || is_of(code);
    at += bytes;
  }
  return any;
}

// `append` says what becomes of each character and where that stood.
template <class Append>
std::string rewrite(std::string_view text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = decode(text, at);
    append(out, at, code);
    at += bytes;
  }
  return out;
}

}  // namespace

bool all_upper(std::string_view text) {
  return is_all(text, is_upper_char, is_lower_char);
}

bool all_lower(std::string_view text) {
  return is_all(text, is_lower_char, is_upper_char);
}

std::string upper(std::string_view text) {
  return rewrite(text,
                 [](std::string& out, std::size_t, char32_t code) { append_upper(out, code); });
}

std::string lower(std::string_view text) {
  return rewrite(text, [text](std::string& out, std::size_t at, char32_t code) {
    append_lower(out, text, at, code);
  });
}

std::string title(std::string_view text) {
  bool in_word = false;
  return rewrite(text, [&](std::string& out, std::size_t at, char32_t code) {
    if (in_word) {
      append_lower(out, text, at, code);
    } else {
      append_title(out, code);
    }
    in_word = is_cased(code);
  });
}

std::string capitalize(std::string_view text) {
  return rewrite(text, [text](std::string& out, std::size_t at, char32_t code) {
    if (at == 0) {
      append_title(out, code);
    } else {
      append_lower(out, text, at, code);
    }
  });
}

std::size_t find(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return kNotFound;
  if (needle.empty()) return from;
  if (needle.size() > text.size() - from) return kNotFound;
  // memmem is linear in the worst case; string_view::find is quadratic.
  const void* hit = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (hit == nullptr) return kNotFound;
  return static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

std::size_t rfind(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return kNotFound;
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const std::size_t hit = find(reversed_text, reversed_needle);
  return hit == kNotFound ? kNotFound : text.size() - hit - needle.size();
}

std::size_t count(std::string_view text, std::string_view needle) {
  if (needle.empty()) return length(text) + 1;
  std::size_t hits = 0;
  for (std::size_t at = find(text, needle); at != kNotFound;
       at = find(text, needle, at + needle.size())) {
    ++hits;
  }
  return hits;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::size_t max_count) {
  std::string out;
  std::size_t done = 0;
  std::size_t at = 0;
  if (from.empty()) {  // between all characters and at both ends
    while (done < max_count) {
      out += to;
      ++done;
      if (at == text.size()) return out;
      const std::size_t bytes = decode(text, at).bytes;
      out += text.substr(at, bytes);
      at += bytes;
    }
    return out += text.substr(at);
  }
  while (done < max_count) {
    const std::size_t hit = find(text, from, at);
    if (hit == kNotFound) break;
    out += text.substr(at, hit - at);
    out += to;
    at = hit + from.size();
    ++done;
  }
  return out += text.substr(at);
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  std::vector<char32_t> set;
  if (chars) {
    for (std::size_t at = 0; at < chars->size();) {
      const auto [code, bytes] = decode(*chars, at);
      set.push_back(code);
      at += bytes;
    }
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t code) {
    return chars ? std::binary_search(set.begin(), set.end(), code) : is_space(code);
  };
  while (side != Side::Right && !text.empty()) {
    const auto [code, bytes] = decode(text, 0);
    if (!strips(code)) break;
    text.remove_prefix(bytes);
  }
  while (side != Side::Left && !text.empty()) {
    const std::size_t at = previous(text, text.size());
    if (!strips(decode(text, at).code)) break;
    text = text.substr(0, at);
  }
  return text;
}

namespace {

std::vector<std::string_view> split_whitespace(std::string_view text, std::size_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::Left);
  while (!text.empty()) {
    if (parts.size() == max_splits) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const auto [code, bytes] = decode(text, end);
      if (is_space(code)) break;
      end += bytes;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::Left);
  }
  return parts;
}

std::vector<std::string_view> rsplit_whitespace(std::string_view text, std::size_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::Right);
  while (!text.empty()) {
    if (parts.size() == max_splits) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      const std::size_t at = previous(text, begin);
      if (is_space(decode(text, at).code)) break;
      begin = at;
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::Right);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator,
                                    std::size_t max_splits) {
  if (!separator) return split_whitespace(text, max_splits);
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  while (parts.size() < max_splits) {
    const std::size_t hit = find(text, *separator, at);
    if (hit == kNotFound) break;
    parts.push_back(text.substr(at, hit - at));
    at = hit + separator->size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text,
                                     std::optional<std::string_view> separator,
                                     std::size_t max_splits) {
  if (!separator) return rsplit_whitespace(text, max_splits);
  // Searching the reversed text finds the rightmost separators first, in linear time.
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_separator(separator->rbegin(), separator->rend());
  std::vector<std::string_view> parts;
  for (const std::string_view part : split(reversed, reversed_separator, max_splits)) {
    const auto from_end = static_cast<std::size_t>(part.data() - reversed.data());
    parts.push_back(text.substr(text.size() - from_end - part.size(), part.size()));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = decode(text, at);
    const std::size_t end = at;
    at += bytes;
    if (!is_line_end(code)) continue;
    if (code == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace llorch::jinja::text
