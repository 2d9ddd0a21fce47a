#include "cli/answer_printer.h"

#include <unistd.h>

#include <string>

#include "base/terminal.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

// As base::printable, but lines and tabs stay.
std::string for_terminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find_first_of("\n\t");
    out += base::printable(text.substr(0, end));
    if (end == std::string_view::npos) break;
    out += text[end];
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

AnswerPrinter::AnswerPrinter(bool enabled, bool color)
    : enabled_(enabled), color_(color), is_terminal_(::isatty(STDOUT_FILENO) != 0) {}

bool AnswerPrinter::operator()(std::string_view text, bool is_reasoning) {
  if (!enabled_ || (is_reasoning && !is_terminal_)) return true;
  std::string shown = is_terminal_ ? for_terminal(text) : std::string(text);
  const bool ends_line = shown.ends_with('\n');
  if (is_reasoning) shown = base::paint(shown, base::Color::Dim, color_);
  if (in_reasoning_ && !is_reasoning) shown = (at_line_start_ ? "\n" : "\n\n") + shown;
  in_reasoning_ = is_reasoning;
  at_line_start_ = ends_line;
  is_empty_ = false;
  return write_out(shown);
}

void AnswerPrinter::finish() {
  if (enabled_ && !at_line_start_) write_out("\n");
  if (enabled_ && is_terminal_ && is_empty_) write_out("\n");
  at_line_start_ = true;
}

}  // namespace llorch::cli
