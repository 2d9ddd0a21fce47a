// Where a JSON value ends, in text that arrives in pieces. Looks at brackets and strings only: what
// is between them is the reader's business. Private to openai/.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::openai {

// One object or array, byte by byte. Belongs to one thread.
class BracketScanner {
 public:
  // How many bytes of `text`, from its beginning, belong to the value; done() tells whether it is
  // over. The first byte of all must be a bracket.
  std::size_t take(std::string_view text);
  bool done() const { return done_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool done_ = false;
};

enum class Scan { Whole, Unfinished, Broken };

// Reads within a text that may end anywhere. Every method moves `at` only when it returns Whole.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }
  bool is_at_end() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  void skip_space();
  void advance(std::size_t count) { at_ += count; }

  Scan read_string(std::string& value);
  Scan skip_value();
  // The byte `wanted`, after whitespace.
  Scan take(char wanted);

 private:
  std::string_view text_;
  std::size_t at_;
};

bool is_json_space(char c);
// Of `text` from `from` on, whitespace.
std::size_t count_space(std::string_view text, std::size_t from = 0);

}  // namespace llorch::openai
