#include "openai/json_scanner.h"

#include "base/json.h"

namespace llorch::openai {
namespace {

bool is_literal_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

}  // namespace

bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::size_t count_space(std::string_view text, std::size_t from) {
  std::size_t count = 0;
  while (from + count < text.size() && is_json_space(text[from + count])) ++count;
  return count;
}

std::size_t BracketScanner::take(std::string_view text) {
  std::size_t used = 0;
  while (used < text.size() && !done_) {
    const char c = text[used++];
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (in_string_) {
      is_escaped_ = c == '\\';
      if (c == '"') in_string_ = false;
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (depth_ > 0) --depth_;
      done_ = depth_ == 0;
    }
  }
  return used;
}

void JsonCursor::skip_space() {
  at_ += count_space(text_, at_);
}

Scan JsonCursor::take(char wanted) {
  const std::size_t at = at_ + count_space(text_, at_);
  if (at == text_.size()) return Scan::Unfinished;
  if (text_[at] != wanted) return Scan::Broken;
  at_ = at + 1;
  return Scan::Whole;
}

Scan JsonCursor::read_string(std::string& value) {
  if (is_at_end()) return Scan::Unfinished;
  if (peek() != '"') return Scan::Broken;
  for (std::size_t end = at_ + 1; end < text_.size(); ++end) {
    if (text_[end] == '\\') {
      ++end;
    } else if (text_[end] == '"') {
      const Result<json::Value> parsed = json::parse(text_.substr(at_, end + 1 - at_));
      if (!parsed.ok() || !parsed->is_string()) return Scan::Broken;
      value = json::view(parsed->get_string());
      at_ = end + 1;
      return Scan::Whole;
    }
  }
  return Scan::Unfinished;
}

Scan JsonCursor::skip_value() {
  if (is_at_end()) return Scan::Unfinished;
  if (peek() == '"') {
    std::string ignored;
    return read_string(ignored);
  }
  if (peek() == '{' || peek() == '[') {
    BracketScanner scanner;
    const std::size_t used = scanner.take(text_.substr(at_));
    if (!scanner.done()) return Scan::Unfinished;
    at_ += used;
    return Scan::Whole;
  }
  std::size_t end = at_;
  while (end < text_.size() && is_literal_char(text_[end])) ++end;
  if (end == at_) return Scan::Broken;
  if (end == text_.size()) return Scan::Unfinished;
  at_ = end;
  return Scan::Whole;
}

}  // namespace llorch::openai
