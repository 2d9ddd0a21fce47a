// Text that knows which parts of it a template wrote itself, and which come from the conversation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_span.h"

namespace llorch::jinja {

// What is not marked as the template's own counts as text of users: whatever makes a string and
// knows no better leaves it unmarked, and is safe.
struct MarkedText {
  std::string text;                 // UTF-8
  std::vector<base::TextSpan> own;  // from left to right, none empty, none touching the next

  // Text of users, or of an origin that nobody knows.
  void add(std::string_view words) { text += words; }
  // Text of the template.
  void add_own(std::string_view words);
  // Another text, or a part of it, with its marks.
  void add(const MarkedText& other) { add(other, 0, other.text.size()); }
  void add(const MarkedText& other, std::size_t begin, std::size_t end);
  // The template's own from the first to the last byte; an empty text is.
  bool is_own() const;

 private:
  void mark(std::size_t begin, std::size_t end);
};

}  // namespace llorch::jinja
