// Walks a JSON text without building it: tokenizer.json holds hundreds of thousands of strings,
// which a tree of values takes three times as long to load. Small parts are handed to json::parse
// as they stand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::tokenizer {

// A position in a JSON text that is known to be valid UTF-8. Every function skips white space first
// and fails with the byte offset.
class JsonScan {
 public:
  // `origin` is the byte offset of `text` in its file, for messages.
  explicit JsonScan(std::string_view text, std::size_t origin = 0) : text_(text), origin_(origin) {}

  // The next value as it is written; strings, braces and brackets are matched, nesting is bounded.
  Result<std::string_view> raw_value();
  // A string's content. Valid until the next call: a piece of the text, or of a buffer when it had
  // escapes.
  Result<std::string_view> string();
  Result<std::int64_t> integer();
  Result<double> number();

  // The elements of an object or array, each left to the callback, which must consume exactly the
  // value.
  Status object(const std::function<Status(std::string_view key)>& on_member);
  Status array(const std::function<Status()>& on_element);

  Status expect(char c);
  bool next_is(char c);
  std::size_t offset() const { return origin_ + position_; }
  Error error(std::string_view what) const;

 private:
  void skip_space();
  Status read_escape();
  Result<std::uint32_t> read_hex4();

  std::string_view text_;
  std::size_t origin_;
  std::size_t position_ = 0;
  std::string buffer_;
};

}  // namespace llorch::tokenizer
