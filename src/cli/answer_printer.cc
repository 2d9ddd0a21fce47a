#include "cli/answer_printer.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

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

AnswerPrinter::AnswerPrinter(PrintOptions options)
    : options_(std::move(options)), is_terminal_(::isatty(STDOUT_FILENO) != 0) {
  if (!is_terminal_) options_.before.clear();
}

bool AnswerPrinter::show(std::string_view text, bool is_reasoning) {
  if (!options_.enabled || (is_reasoning && !is_terminal_)) return true;
  std::string shown = is_terminal_ ? for_terminal(text) : std::string(text);
  const bool ends_line = shown.ends_with('\n');
  if (is_reasoning) shown = base::paint(shown, base::Color::Dim, options_.color);
  if (in_reasoning_ && !is_reasoning) shown = (at_line_start_ ? "\n" : "\n\n") + shown;
  shown = std::exchange(options_.before, {}) + shown;
  in_reasoning_ = is_reasoning;
  at_line_start_ = ends_line;
  is_empty_ = false;
  is_writable_ = write_out(shown);
  return is_writable_;
}

void AnswerPrinter::finish() {
  if (options_.enabled && !at_line_start_) write_out("\n");
  if (options_.enabled && is_terminal_ && is_empty_) write_out(options_.before + "\n");
}

Status ask_and_print(const pool_client::Question& question, PrintOptions print,
                     std::stop_token stop, pool_client::Answer& answer) {
  AnswerPrinter printer(std::move(print));
  Status asked = pool_client::ask_worker(
      question,
      [&printer](std::string_view text, bool is_reasoning) {
        return printer.show(text, is_reasoning);
      },
      {.total = std::chrono::milliseconds(0), .stop = std::move(stop)}, answer);
  printer.finish();
  if (printer.is_writable()) return asked;
  return Error{ErrorCode::Internal, "the text could not be written to standard output"};
}

double tokens_per_second(const contract::InferenceResult& result) {
  // The first token belongs to the prompt's time.
  if (result.decode_time_ms <= 0 || result.tokens_out < 2) return 0;
  return static_cast<double>(result.tokens_out - 1) * 1000.0 /
         static_cast<double>(result.decode_time_ms);
}

}  // namespace llorch::cli
