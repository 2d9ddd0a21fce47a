// The text of an answer on standard output as it comes. Private to cli/.
#pragma once

#include <string_view>

namespace llorch::cli {

// Thoughts of a reasoning model are shown dimmed to people at a terminal, and to nobody else: they
// are not the answer. What could command a terminal is not sent to one; a pipe gets every byte.
class AnswerPrinter {
 public:
  // `enabled`: whether anything is printed at all.
  AnswerPrinter(bool enabled, bool color);

  // False when the text cannot be written.
  bool operator()(std::string_view text, bool is_reasoning);

  // Ends the last line; on a terminal also that of an empty answer.
  void finish();

 private:
  const bool enabled_;
  const bool color_;
  const bool is_terminal_;
  bool in_reasoning_ = false;
  bool at_line_start_ = true;
  bool is_empty_ = true;
};

}  // namespace llorch::cli
