#include "template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "template/text.h"

namespace llorch::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out.push_back(source[at]);
      continue;
    }
    out.push_back('\n');
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  Result<std::vector<Token>> run() {
    while (!error_ && at_ < text_.size()) lex_root();
    if (error_) return *error_;
    push(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view prefix, std::size_t at) const {
    return text_.substr(at, prefix.size()) == prefix;
  }
  bool starts(std::string_view prefix) const { return starts(prefix, at_); }

  Token& push(TokenKind kind, std::string_view text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = text;
    return token;
  }

  void fail(std::string_view what) {
    if (!error_) error_ = template_error(ErrorCode::Corrupt, line_, what);
    at_ = text_.size();
  }

  // Moves on and keeps the line number and the "at the start of a line" state.
  void consume(std::size_t bytes) {
    const std::string_view passed = text_.substr(at_, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    line_starting_ = !passed.empty() && passed.back() == '\n';
    at_ += bytes;
  }

  std::size_t space_after(std::size_t at) const {
    const std::string_view rest = text_.substr(at);
    return rest.size() - text::strip(rest, text::Side::Left).size();
  }

  // The length of an end tag at `at`, with the whitespace that it takes along; 0 where there is
  // none.
  std::size_t end_tag(std::string_view closing, bool trims_newline, std::size_t at) const {
    if (at < text_.size() && text_[at] == '-' && starts(closing, at + 1)) {
      const std::size_t end = at + 1 + closing.size();
      return end + space_after(end) - at;
    }
    if (trims_newline && at < text_.size() && text_[at] == '+' && starts(closing, at + 1)) {
      return 1 + closing.size();
    }
    if (!starts(closing, at)) return 0;
    const bool newline = trims_newline && starts("\n", at + closing.size());
    return closing.size() + (newline ? 1 : 0);
  }

  // The text before a tag, less what the tag's sign and lstrip_blocks take away.
  std::string_view strip_before_tag(std::string_view data, char sign, bool is_variable) const {
    if (sign == '-') return text::strip(data, text::Side::Right);
    if (sign == '+' || is_variable) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return data;
    const bool blank = text::strip(data.substr(line_start), text::Side::Left).empty();
    return blank ? data.substr(0, line_start) : data;
  }

  char sign_at(std::size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  void lex_root() {
    std::size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        push(TokenKind::Data, text_.substr(at_));
        consume(text_.size() - at_);
        return;
      }
      const char next = text_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    const char type = text_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::string_view data = strip_before_tag(text_.substr(at_, tag - at_), sign, type == '{');
    if (!data.empty()) push(TokenKind::Data, data);
    const std::size_t raw = type == '%' ? raw_tag(tag) : 0;
    consume(tag - at_);
    if (raw != 0) {
      consume(raw);
      lex_raw();
      return;
    }
    consume(sign == '\0' ? 2 : 3);
    if (type == '#') {
      lex_comment();
    } else {
      lex_tag(type == '%');
    }
  }

  // The length of "{% raw %}" at `tag`; 0 where it is another tag.
  std::size_t raw_tag(std::size_t tag) const {
    std::size_t at = tag + 2 + (sign_at(tag + 2) == '\0' ? 0 : 1);
    at += space_after(at);
    if (!starts("raw", at)) return 0;
    at += 3;
    at += space_after(at);
    if (starts("-%}", at)) return at + 3 + space_after(at + 3) - tag;
    return starts("%}", at) ? at + 2 - tag : 0;
  }

  void lex_raw() {
    for (std::size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t at = tag + 2 + (sign == '\0' ? 0 : 1);
      at += space_after(at);
      if (!starts("endraw", at)) continue;
      at += 6;
      at += space_after(at);
      const std::size_t closing = end_tag("%}", true, at);
      if (closing == 0) continue;
      const std::string_view data = strip_before_tag(text_.substr(at_, tag - at_), sign, false);
      if (!data.empty()) push(TokenKind::Data, data);
      consume(at + closing - at_);
      return;
    }
    fail("missing end of raw block: expected {% endraw %}");
  }

  void lex_comment() {
    const std::size_t found = text_.find("#}", at_);
    if (found == std::string_view::npos) return fail("missing end of comment: expected #}");
    std::size_t end = found;
    if (end > at_ && sign_at(end - 1) != '\0') --end;
    consume(end + end_tag("#}", true, end) - at_);
  }

  void lex_tag(bool is_block) {
    push(is_block ? TokenKind::BlockBegin : TokenKind::VariableBegin, "");
    open_.clear();
    while (!error_) {
      consume(space_after(at_));
      if (at_ >= text_.size()) {
        if (!error_)
          fail(is_block ? "unexpected end of template: expected %}"
                        : "unexpected end of template: expected }}");
        return;
      }
      const std::size_t closing =
          open_.empty() ? end_tag(is_block ? "%}" : "}}", is_block, at_) : 0;
      if (closing != 0) {
        push(is_block ? TokenKind::BlockEnd : TokenKind::VariableEnd, "");
        consume(closing);
        return;
      }
      lex_token();
    }
  }

  void lex_token() {
    const char c = text_[at_];
    if (is_ascii_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string(c);
    const auto [code, bytes] = text::decode(text_, at_);
    if (code == U'_' || text::is_alpha(code)) return lex_name();
    for (const std::string_view op : kOperators) {
      if (!starts(op)) continue;
      if (!balance(op)) return;
      push(TokenKind::Operator, op);
      return consume(op.size());
    }
    fail(fmt::format("unexpected character {}", in_quotes(text_.substr(at_, bytes))));
  }

  bool balance(std::string_view op) {
    if (op == "{" || op == "(" || op == "[") {
      open_.push_back(op == "{" ? '}' : op == "(" ? ')' : ']');
    } else if (op == "}" || op == ")" || op == "]") {
      if (open_.empty() || open_.back() != op[0]) {
        fail(open_.empty() ? fmt::format("unexpected '{}'", op)
                           : fmt::format("unexpected '{}', expected '{}'", op, open_.back()));
        return false;
      }
      open_.pop_back();
    }
    return true;
  }

  void lex_name() {
    std::size_t end = at_;
    while (end < text_.size()) {
      const auto [code, bytes] = text::decode(text_, end);
      if (code != U'_' && !text::is_alpha(code) && !text::is_numeric(code)) break;
      end += bytes;
    }
    push(TokenKind::Name, text_.substr(at_, end - at_));
    consume(end - at_);
  }

  // Digits with single underscores between them; returns the end.
  std::size_t digits(std::size_t at) const {
    std::size_t end = at;
    while (end < text_.size() && (is_ascii_digit(text_[end]) ||
                                  (text_[end] == '_' && end > at && end + 1 < text_.size() &&
                                   is_ascii_digit(text_[end + 1])))) {
      ++end;
    }
    return end;
  }

  void lex_number() {
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    const std::size_t whole_end = digits(at_);
    std::size_t end = whole_end;
    if (!after_dot) {
      if (starts(".", end) && digits(end + 1) > end + 1) end = digits(end + 1);
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const std::size_t sign = sign_at(end + 1) == '\0' ? 0 : 1;
        if (digits(end + 1 + sign) > end + 1 + sign) end = digits(end + 1 + sign);
      }
    }
    if (end == whole_end) return lex_integer();
    std::string literal(text_.substr(at_, end - at_));
    literal.erase(std::remove(literal.begin(), literal.end(), '_'), literal.end());
    double value = 0;
    const auto parsed = std::from_chars(literal.data(), literal.data() + literal.size(), value);
    if (parsed.ec == std::errc::result_out_of_range) {
      return fail(fmt::format("number {} does not fit a float", literal.substr(0, 40)));
    }
    push(TokenKind::Real, "").real = value;
    consume(end - at_);
  }

  void lex_integer() {
    int base = 10;
    std::size_t at = at_;
    if (text_[at] == '0' && at + 1 < text_.size()) {
      const char letter = static_cast<char>(text_[at + 1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10) at += 2;
    }
    Int value = 0;
    std::size_t end = at;
    for (; end < text_.size(); ++end) {
      const char c = text_[end];
      if (c == '_' && end > at) continue;
      const char lower = static_cast<char>(c | 0x20);
      const int digit = is_ascii_digit(c)              ? c - '0'
                        : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                       : 99;
      if (digit >= base) break;
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit}, &value)) {
        return fail("integer literal is too large");
      }
    }
    if (end == at) return fail("invalid integer literal");
    push(TokenKind::Integer, "").integer = value;
    consume(end - at_);
  }

  void lex_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2U : 1U;
    if (end >= text_.size()) return fail("unterminated string");
    std::string value;
    const bool ok = unescape(text_.substr(at_ + 1, end - at_ - 1), value);
    if (!ok) return fail("invalid escape sequence in a string");
    push(TokenKind::String, value);
    consume(end + 1 - at_);
  }

  // Reads `count` hexadecimal digits at `at`.
  static std::optional<char32_t> hex(std::string_view body, std::size_t at, std::size_t count) {
    if (body.size() - at < count) return std::nullopt;
    std::uint32_t code = 0;
    const char* end = body.data() + at + count;
    const auto parsed = std::from_chars(body.data() + at, end, code, 16);
    if (parsed.ptr != end || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return std::nullopt;
    }
    return code;
  }

  static bool unescape(std::string_view body, std::string& out) {
    for (std::size_t at = 0; at < body.size(); ++at) {
      if (body[at] != '\\') {
        out.push_back(body[at]);
        continue;
      }
      const char c = body[++at];  // lex_string saw a character behind every backslash
      constexpr std::string_view kLetters = "abfnrtv\\'\"";
      constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
        out.push_back(kMeanings[known]);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::optional<char32_t> code = hex(body, at + 1, count);
        if (!code) return false;
        text::append(out, *code);
        at += count;
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        std::size_t end = at;
        while (end < body.size() && end < at + 3 && body[end] >= '0' && body[end] <= '7') {
          code = code * 8 + static_cast<char32_t>(body[end++] - '0');
        }
        text::append(out, code);
        at = end - 1;
      } else if (c == 'N') {
        return false;  // characters by name
      } else if (c != '\n') {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return true;
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_;  // closing brackets that are still expected
  std::vector<Token> tokens_;
  std::optional<Error> error_;
};

}  // namespace

Error template_error(ErrorCode code, int line, std::string_view what) {
  return {code, fmt::format("chat template line {}: {}", line, what)};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (!text::is_valid_utf8(source)) {
    return Error{ErrorCode::Corrupt, "chat template is not valid UTF-8"};
  }
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace llorch::jinja
