// Lines that a person types at a terminal, with editing, history and pasting, or that come through
// a pipe. Hides libedit. Private to cli/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace llorch::cli {

// One thread reads; interrupt() may come from any other and from none at all.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Whether standard input and output are a terminal: only then prompts are shown.
  bool is_terminal() const { return is_terminal_; }

  enum class Outcome : std::uint8_t { Line, Interrupted, End };
  // The next line without its end. A text that was pasted is part of one line, with its line
  // breaks. Interrupted drops what was typed.
  Outcome read(const std::string& prompt, std::string& line);

  // For the arrow keys.
  void remember(const std::string& line);

  // Ends a read that waits, or the next one.
  void interrupt();

 private:
  class Terminal;
  Outcome read_from_pipe(std::string& line);
  // A byte of standard input, -1 at its end, -2 when interrupted.
  int read_byte();

  const bool is_terminal_;
  int wake_fd_;
  std::string buffer_;  // of a pipe: what was read and not yet returned
  std::size_t used_ = 0;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace llorch::cli
