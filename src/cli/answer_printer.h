// Asking a worker, with its answer on standard output as it comes. Private to cli/.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/inference.h"
#include "pool_client/ask_worker.h"

namespace llorch::cli {

// Asks the worker and prints the answer where `enabled` says so; its last line is ended, on a
// terminal also that of an empty answer. As pool_client::ask_worker; Internal when the text cannot
// be written.
//
// Thoughts of a reasoning model are shown dimmed to people at a terminal, and to nobody else: they
// are not the answer. What could command a terminal is not sent to one; a pipe gets every byte.
struct PrintOptions {
  bool enabled = true;
  bool color = false;
  std::string before{};  // on a terminal, in front of the first text
};

// What prints the pieces of an answer as they come.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(PrintOptions options);

  bool show(std::string_view text, bool is_reasoning);  // false: it cannot be written
  void finish();
  bool is_writable() const { return is_writable_; }
  // Whether nothing of the answer stands in the last line: something else may be shown there.
  bool is_at_line_start() const { return at_line_start_; }

 private:
  PrintOptions options_;
  const bool is_terminal_;
  bool in_reasoning_ = false;
  bool at_line_start_ = true;
  bool is_empty_ = true;
  bool is_writable_ = true;
};

Status ask_and_print(const pool_client::Question& question, PrintOptions print,
                     std::stop_token stop, pool_client::Answer& answer);

double tokens_per_second(const contract::InferenceResult& result);

}  // namespace llorch::cli
