#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

using Kind = NormalizeStep::Kind;

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// Marks that follow one another, in the order that every normal form has them in. utf8proc would
// sort them one step at a time, which is quadratic: 80 KB of marks in the wrong order took 6 s.
std::string with_sorted_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  struct Mark {
    int combining_class;
    std::string_view bytes;
  };
  std::vector<Mark> marks;
  const auto flush = [&] {
    std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    for (const Mark& mark : marks) out += mark.bytes;
    marks.clear();
  };
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const int combining = combining_class(c.code_point);
    if (combining != 0) {
      marks.push_back({combining, text.substr(i, c.bytes)});
    } else {
      flush();
      out += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  flush();
  return out;
}

std::string run_utf8proc(std::string_view original, Kind kind) {
  const std::string text = with_sorted_marks(original);
  int options = UTF8PROC_STABLE;
  options |= kind == Kind::Nfc || kind == Kind::Nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (kind == Kind::Nfkc || kind == Kind::Nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  if (size < 0)
    return std::string(text);  // only for invalid UTF-8 or no memory: neither reaches this
  std::string out(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
  std::free(result);
  return out;
}

struct CodePointRange {
  char32_t first, last;
};

// Characters with a decomposition or a combining class that Unicode got after its version 9, which
// is what the Rust library that models are trained with knows. It leaves them alone; so do we, to
// give the same ids.
constexpr CodePointRange kLeftAlone[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ADD},   {0x1AE0, 0x1AEB},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
    {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C0, 0x105F3},
    {0x10780, 0x107BA}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC},
    {0x10EFA, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11900, 0x11959}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16100, 0x16139}, {0x16D40, 0x16D79}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6F5},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool is_left_alone(char32_t c) {
  if (c < kLeftAlone[0].first) return false;
  const auto* after =
      std::upper_bound(std::begin(kLeftAlone), std::end(kLeftAlone), c,
                       [](char32_t value, CodePointRange range) { return value < range.first; });
  return after != std::begin(kLeftAlone) && c <= after[-1].last;
}

// The other forms: whole stretches between the characters that are left alone.
std::string normalize_stretches(std::string_view text, Kind kind) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (is_left_alone(c.code_point)) {
      if (i > begin) out += run_utf8proc(text.substr(begin, i - begin), kind);
      out += text.substr(i, c.bytes);
      begin = i + c.bytes;
    }
    i += c.bytes;
  }
  if (begin < text.size()) out += run_utf8proc(text.substr(begin), kind);
  return out;
}

// A character that NFC leaves alone whatever stands next to it, unless that is one that it does
// not.
bool is_inert(char32_t c) {
  if (c < 0x300 || is_left_alone(c)) return true;
  if (UnicodeTable::instance().is_mark(c)) return false;
  if (c >= 0x1100 && c < 0x1200) return false;  // Hangul jamo join
  if (c >= 0xAC00 && c < 0xD7A4) return true;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX;
}

// NFC, with utf8proc called only for the stretches that could change: most texts have none.
std::string compose(std::string_view text) {
  std::string out;
  std::size_t done = 0, previous = 0, i = 0;
  while (i < text.size()) {
    const Utf8Char c = utf8_at(text, i);
    if (is_inert(c.code_point)) {
      previous = is_left_alone(c.code_point) ? i + c.bytes : i;
      i += c.bytes;
      continue;
    }
    // From the character before, with which this one may join, up to the next that joins nothing.
    const std::size_t begin = std::max(done, previous);
    i += c.bytes;
    while (i < text.size()) {
      const Utf8Char next = utf8_at(text, i);
      if (is_inert(next.code_point)) break;
      i += next.bytes;
    }
    out += text.substr(done, begin - done);
    out += run_utf8proc(text.substr(begin, i - begin), Kind::Nfc);
    done = previous = i;
  }
  if (done == 0) return std::string(text);
  out += text.substr(done);
  return out;
}

template <class Function>
std::string map_characters(std::string_view text, Function append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    append(out, c.code_point, text.substr(i, c.bytes));
    i += c.bytes;
  }
  return out;
}

std::string lowercase(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c, std::string_view) {
    if (c == 0x130) {  // the one lower case of two characters
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
}

std::string strip_marks(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c, std::string_view bytes) {
    if (!UnicodeTable::instance().is_mark(c)) out += bytes;
  });
}

std::string strip_accents(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c, std::string_view bytes) {
    if (UnicodeTable::instance().old_category(c) != Category::Mn) out += bytes;
  });
}

bool is_control(char32_t c) {
  const Category category = UnicodeTable::instance().old_category(c);
  return category == Category::Cc || category == Category::Cf || category == Category::Co;
}

std::string clean_text(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c, std::string_view bytes) {
    if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
    } else if (c == 0 || c == 0xFFFD || is_control(c)) {
      return;
    } else if (UnicodeTable::instance().is_space(c)) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string space_chinese(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c, std::string_view bytes) {
    if (is_ideograph(c)) {
      out += ' ';
      out += bytes;
      out += ' ';
    } else {
      out += bytes;
    }
  });
}

std::string_view strip(std::string_view text, bool left, bool right) {
  const UnicodeTable& table = UnicodeTable::instance();
  while (left && !text.empty()) {
    const Utf8Char c = utf8_at(text, 0);
    if (!table.is_space(c.code_point)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    const Utf8Char c = utf8_last(text);
    if (!table.is_space(c.code_point)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

// Whether a text that grows is still within its bounds.
bool may_grow(const std::string& out, EncodeBudget& budget) {
  if (out.size() <= budget.max_bytes()) return true;
  budget.fail("its normalizer makes the text too large");
  return false;
}

// Linear, which string_view::find is not.
std::size_t find_text(std::string_view text, std::string_view pattern, std::size_t from) {
  const void* hit =
      ::memmem(text.data() + from, text.size() - from, pattern.data(), pattern.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

std::string replace_text(std::string_view text, std::string_view pattern, std::string_view content,
                         EncodeBudget& budget) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  std::size_t done = 0;
  for (std::size_t at = find_text(text, pattern, 0);
       at != std::string_view::npos && may_grow(out, budget); at = find_text(text, pattern, done)) {
    out += text.substr(done, at - done);
    out += content;
    done = at + pattern.size();
  }
  out += text.substr(done);
  return out;
}

std::string collapse_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

Result<std::string> replace_matches(std::string_view text, const NormalizeStep& step,
                                    EncodeBudget& budget) {
  std::string out;
  std::size_t done = 0;
  Status matched =
      step.regex->for_each_match(text, budget, [&](std::size_t begin, std::size_t end) {
        if (!may_grow(out, budget)) return;
        out += text.substr(done, begin - done);
        out += step.content;
        done = end;
      });
  if (!matched.ok()) return matched.error();
  out += text.substr(done);
  return out;
}

// The Rust library's reading of a charsmap: a short grapheme that has a rule as a whole is replaced
// by it, else each of its characters that has one.
std::string map_graphemes(const Charsmap& charsmap, std::string_view text, EncodeBudget& budget) {
  std::string out;
  const auto replace = [&](std::string_view part) {
    const Charsmap::Replacement found = charsmap.longest_match(part);
    if (found.matched == 0) return false;
    out += found.content;
    return true;
  };
  constexpr std::size_t kShort = 6;
  for (std::size_t begin = 0; begin < text.size() && may_grow(out, budget);) {
    std::size_t end = begin;
    utf8proc_int32_t state = 0;
    Utf8Char c = utf8_at(text, begin);
    for (;;) {
      end += c.bytes;
      if (end == text.size()) break;
      const Utf8Char next = utf8_at(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code_point),
                                           static_cast<utf8proc_int32_t>(next.code_point),
                                           &state)) {
        break;
      }
      c = next;
    }
    const std::string_view grapheme = text.substr(begin, end - begin);
    begin = end;
    if (grapheme.size() < kShort && replace(grapheme)) continue;
    for (std::size_t i = 0; i < grapheme.size() && may_grow(out, budget);) {
      const std::string_view character = grapheme.substr(i, utf8_length(grapheme[i]));
      if (!replace(character)) out += character;
      i += character.size();
    }
  }
  return out;
}

Result<std::string> apply_step(const NormalizeStep& step, std::string_view text,
                               EncodeBudget& budget) {
  switch (step.kind) {
    case Kind::Nfc:
      return compose(text);
    case Kind::Nfd:
    case Kind::Nfkc:
    case Kind::Nfkd:
      return normalize_stretches(text, step.kind);
    case Kind::Lowercase:
      return lowercase(text);
    case Kind::StripAccents:
      return strip_accents(text);
    case Kind::StripMarks:
      return strip_marks(text);
    case Kind::Strip:
      return std::string(strip(text, step.strips_left, step.strips_right));
    case Kind::Prepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case Kind::Replace:
      return step.regex ? replace_matches(text, step, budget)
                        : replace_text(text, step.pattern, step.content, budget);
    case Kind::CleanText:
      return clean_text(text);
    case Kind::SpaceChinese:
      return space_chinese(text);
    case Kind::Charsmap:
      return step.by_grapheme ? map_graphemes(*step.charsmap, text, budget)
                              : step.charsmap->apply(text, budget.max_bytes());
    case Kind::CollapseSpaces:
      return collapse_spaces(text);
  }
  return std::string(text);
}

}  // namespace

Result<std::string> Normalizer::apply(std::string_view text, EncodeBudget& budget) const {
  std::string current(text);
  for (const NormalizeStep& step : steps_) {
    if (!budget.spend(4 * current.size())) break;
    Result<std::string> next = apply_step(step, current, budget);
    if (!next.ok()) return next;
    current = next.take();
    if (!may_grow(current, budget)) break;
  }
  if (budget.is_spent()) return budget.status().error();
  return current;
}

}  // namespace llorch::tokenizer
