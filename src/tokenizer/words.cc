// The two expressions that nearly all byte-level tokenizers use, written out by hand.
#include "base/ascii.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

enum class Class : std::uint8_t { Letter, Number, Space, Other };

struct ClassifiedChar {
  Class kind;
  std::size_t bytes;
};

Class class_of_entry(std::uint8_t entry) {
  if ((entry & UnicodeTable::kLetter) != 0) return Class::Letter;
  if ((entry & UnicodeTable::kNumber) != 0) return Class::Number;
  return (entry & UnicodeTable::kSpace) != 0 ? Class::Space : Class::Other;
}

// A view of the text by classes; positions are bytes.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(UnicodeTable::instance()) {}

  bool at_end(std::size_t at) const { return at >= text_.size(); }
  bool is(std::size_t at, char c) const { return at < text_.size() && text_[at] == c; }
  bool is_newline(std::size_t at) const { return is(at, '\n') || is(at, '\r'); }

  ClassifiedChar at(std::size_t position) const {
    const Utf8Char c = utf8_at(text_, position);
    return {class_of_entry(table_.entry(c.code_point)), c.bytes};
  }

  // The end of the run of `kind` from here; at most `limit` characters.
  std::size_t skip(std::size_t position, Class kind, std::size_t limit = SIZE_MAX) const {
    for (; limit > 0 && position < text_.size(); --limit) {
      const ClassifiedChar c = at(position);
      if (c.kind != kind) break;
      position += c.bytes;
    }
    return position;
  }

  // 's 't 'm 'd 're 've 'll behind an apostrophe at `begin`: the end, or begin when there is none.
  std::size_t contraction(std::size_t begin, bool ignores_case) const {
    const auto letter = [&](std::size_t offset) -> char {
      if (begin + offset >= text_.size()) return '\0';
      const char c = text_[begin + offset];
      return ignores_case ? base::ascii_lower(c) : c;
    };
    const char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const char second = letter(2);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return begin + 3;
    }
    // The long s (U+017F) is a lower case of S.
    if (ignores_case && text_.substr(begin + 1, 2) == "\xC5\xBF") return begin + 3;
    return begin;
  }

  // White space that nothing else has claimed: all of it at the end of the text, else all but its
  // last character (which goes with what follows), else that one character.
  std::size_t white_space(std::size_t begin) const {
    std::size_t end = begin, last = begin;
    while (end < text_.size()) {
      const ClassifiedChar c = at(end);
      if (c.kind != Class::Space) break;
      last = end;
      end += c.bytes;
    }
    return end == text_.size() || last == begin ? end : last;
  }

  // The end of the last line break in the run of white space at `begin`; begin when it has none.
  std::size_t last_line_break(std::size_t begin) const {
    std::size_t end = begin;
    for (std::size_t i = begin; i < text_.size();) {
      const ClassifiedChar c = at(i);
      if (c.kind != Class::Space) break;
      i += c.bytes;
      if (is_newline(i - c.bytes)) end = i;
    }
    return end;
  }

 private:
  std::string_view text_;
  const UnicodeTable& table_;
};

}  // namespace

std::size_t next_gpt2_word(std::string_view text, std::size_t begin) {
  const Scanner scan(text);
  if (text[begin] == '\'') {
    const std::size_t end = scan.contraction(begin, /*ignores_case=*/false);
    if (end != begin) return end;
  }
  const std::size_t start = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const ClassifiedChar first = scan.at(start);
  if (first.kind != Class::Space) return scan.skip(start + first.bytes, first.kind);
  return scan.white_space(begin);
}

std::size_t next_tiktoken_word(std::string_view text, std::size_t begin, std::size_t max_digits) {
  const Scanner scan(text);
  const ClassifiedChar first = scan.at(begin);
  if (first.kind == Class::Letter) return scan.skip(begin + first.bytes, Class::Letter);
  if (text[begin] == '\'') {
    const std::size_t end = scan.contraction(begin, /*ignores_case=*/true);
    if (end != begin) return end;
  }
  if (first.kind == Class::Number) return scan.skip(begin, Class::Number, max_digits);
  const std::size_t second = begin + first.bytes;
  if (!scan.is_newline(begin) && !scan.at_end(second)) {
    const ClassifiedChar next = scan.at(second);
    if (next.kind == Class::Letter) return scan.skip(second + next.bytes, Class::Letter);
    if (first.kind == Class::Space && text[begin] == ' ' && next.kind == Class::Other) {
      std::size_t end = scan.skip(second, Class::Other);
      while (scan.is_newline(end)) ++end;
      return end;
    }
  }
  if (first.kind == Class::Other) {
    std::size_t end = scan.skip(begin, Class::Other);
    while (scan.is_newline(end)) ++end;
    return end;
  }
  const std::size_t line_break = scan.last_line_break(begin);
  return line_break != begin ? line_break : scan.white_space(begin);
}

}  // namespace llorch::tokenizer
