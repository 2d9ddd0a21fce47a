#include "tokenizer/json_scan.h"

#include <fmt/format.h>

#include <charconv>

#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

constexpr std::size_t kMaxDepth = 64;

}  // namespace

Error JsonScan::error(std::string_view what) const {
  return {ErrorCode::Corrupt, fmt::format("JSON at byte {}: {}", offset(), what)};
}

void JsonScan::skip_space() {
  while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' ||
                                      text_[position_] == '\t' || text_[position_] == '\r')) {
    ++position_;
  }
}

bool JsonScan::next_is(char c) {
  skip_space();
  return position_ < text_.size() && text_[position_] == c;
}

Status JsonScan::expect(char c) {
  if (!next_is(c)) return error(fmt::format("expected '{}'", c));
  ++position_;
  return ok_status();
}

Result<std::string_view> JsonScan::raw_value() {
  skip_space();
  const std::size_t begin = position_;
  std::size_t depth = 0;
  do {
    skip_space();
    if (position_ >= text_.size()) return error("the text ends inside a value");
    const char c = text_[position_];
    if (c == '"') {
      if (Result<std::string_view> skipped = string(); !skipped.ok()) return skipped;
    } else if (c == '{' || c == '[') {
      ++position_;
      if (++depth > kMaxDepth) return error(fmt::format("nested deeper than {} levels", kMaxDepth));
    } else if (c == '}' || c == ']') {
      if (depth == 0) return error("expected a value");
      ++position_;
      --depth;
    } else if (c == ',' || c == ':') {
      if (depth == 0) return error("expected a value");
      ++position_;
    } else {
      position_ = std::min(text_.find_first_of(" \n\t\r,:]}[{\"", position_), text_.size());
    }
  } while (depth > 0);
  return text_.substr(begin, position_ - begin);
}

Result<std::string_view> JsonScan::string() {
  if (Status quote = expect('"'); !quote.ok()) return quote.error();
  const std::size_t begin = position_;
  bool has_escapes = false;
  buffer_.clear();
  for (;;) {
    if (position_ >= text_.size()) return error("the text ends inside a string");
    const char c = text_[position_];
    if (c == '"') break;
    if (static_cast<std::uint8_t>(c) < 0x20) return error("a control character inside a string");
    if (c != '\\') {
      if (has_escapes) buffer_ += c;
      ++position_;
      continue;
    }
    if (!has_escapes) buffer_ = text_.substr(begin, position_ - begin);
    has_escapes = true;
    if (Status escape = read_escape(); !escape.ok()) return escape.error();
  }
  const std::size_t end = position_++;
  return has_escapes ? std::string_view(buffer_) : text_.substr(begin, end - begin);
}

Result<std::uint32_t> JsonScan::read_hex4() {
  std::uint32_t value = 0;
  const char* first = text_.data() + position_;
  if (position_ + 4 > text_.size()) return error("an escape that does not end");
  const auto parsed = std::from_chars(first, first + 4, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != first + 4)
    return error("expected four hexadecimal digits");
  position_ += 4;
  return value;
}

Status JsonScan::read_escape() {
  ++position_;
  if (position_ >= text_.size()) return error("the text ends inside a string");
  const char c = text_[position_++];
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
    buffer_ += kValues[known];
    return ok_status();
  }
  if (c != 'u') return error("an unknown escape");
  Result<std::uint32_t> unit = read_hex4();
  if (!unit.ok()) return unit.error();
  char32_t code_point = unit.value();
  if (code_point >= 0xD800 && code_point <= 0xDFFF) {
    if (code_point >= 0xDC00 || text_.substr(position_, 2) != "\\u")
      return error("half of a surrogate pair");
    position_ += 2;
    Result<std::uint32_t> low = read_hex4();
    if (!low.ok()) return low.error();
    if (low.value() < 0xDC00 || low.value() > 0xDFFF) return error("half of a surrogate pair");
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low.value() - 0xDC00);
  }
  append_utf8(buffer_, code_point);
  return ok_status();
}

Result<std::int64_t> JsonScan::integer() {
  skip_space();
  std::int64_t value = 0;
  const char* first = text_.data() + position_;
  const auto parsed = std::from_chars(first, text_.data() + text_.size(), value);
  if (parsed.ec != std::errc()) return error("expected an integer");
  position_ += static_cast<std::size_t>(parsed.ptr - first);
  if (position_ < text_.size() && (text_[position_] == '.' || text_[position_] == 'e')) {
    return error("expected an integer, found a fraction");
  }
  return value;
}

Result<double> JsonScan::number() {
  skip_space();
  double value = 0;
  const char* first = text_.data() + position_;
  const auto parsed = std::from_chars(first, text_.data() + text_.size(), value);
  if (parsed.ec != std::errc()) return error("expected a number");
  position_ += static_cast<std::size_t>(parsed.ptr - first);
  return value;
}

Status JsonScan::object(const std::function<Status(std::string_view key)>& on_member) {
  if (Status open = expect('{'); !open.ok()) return open;
  if (next_is('}')) return expect('}');
  for (;;) {
    Result<std::string_view> key = string();
    if (!key.ok()) return key.error();
    const std::string held(key.value());
    if (Status colon = expect(':'); !colon.ok()) return colon;
    if (Status member = on_member(held); !member.ok()) return member;
    if (!next_is(',')) return expect('}');
    ++position_;
  }
}

Status JsonScan::array(const std::function<Status()>& on_element) {
  if (Status open = expect('['); !open.ok()) return open;
  if (next_is(']')) return expect(']');
  for (;;) {
    if (Status element = on_element(); !element.ok()) return element;
    if (!next_is(',')) return expect(']');
    ++position_;
  }
}

}  // namespace llorch::tokenizer
