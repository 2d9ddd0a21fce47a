// What programs print for people: sizes they can read, columns that line up, colour where there is
// a terminal, and nothing from a file that could command one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::base {

enum class Color : std::uint8_t { None, Bold, Dim, Red, Green, Yellow };

// Whether to colour what goes to `stream`: it is a terminal, no dumb one (TERM), and the user did
// not set NO_COLOR (`no_color`: the value of that variable, null when unset) to anything.
bool wants_color(std::FILE* stream, const char* no_color);

// `text` in that colour when `enabled`, else as it is.
std::string paint(std::string_view text, Color color, bool enabled);

// Valid UTF-8 without control characters: each that was there becomes U+FFFD. For text from files
// and peers.
std::string printable(std::string_view text);

// Breaks the text at spaces so that lines end before column `width`; lines after the first, which
// is taken to begin at column `indent`, get that many spaces in front. A word longer than a line
// stays whole.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent);

// "512 B", "1.5 KiB", "23.4 GiB": three digits that matter.
std::string human_bytes(std::int64_t bytes);
// "512", "260 K", "1.24 B": thousands, millions, billions.
std::string human_count(std::int64_t count);

// "[#####               ]": how much of 0..1 is done, in `width` columns between the brackets.
std::string progress_bar(double fraction, std::size_t width);

// One line on a terminal that is written over and over: what a long task is doing. Silent where
// there is no terminal. Belongs to one thread; gone from the screen when the object is.
class StatusLine {
 public:
  explicit StatusLine(std::FILE* stream);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Shows the text, at most ten times a second. It should fit the width of a terminal: 79 columns.
  void show(std::string_view text);
  void clear();

 private:
  std::FILE* stream_;  // null: not a terminal
  std::chrono::steady_clock::time_point last_shown_{};
  bool is_shown_ = false;
};

// Rows of cells, printed with every column as wide as its widest cell. Cells are printable text.
class TextTable {
 public:
  enum class Align : std::uint8_t { Left, Right };

  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // One cell for each column; the colour goes to the whole row.
  void add_row(std::vector<std::string> cells, Color color = Color::None);

  // Lines with `indent` spaces in front, two spaces between columns, none at the end. Where they
  // would be longer than `width`, the first row is taken for the names of the columns, and each
  // other row becomes a paragraph with a line for each cell that is not empty.
  std::string render(std::size_t indent, bool color, std::size_t width = kNoWidth) const;
  static constexpr std::size_t kNoWidth = ~std::size_t{0};

 private:
  struct Row {
    std::vector<std::string> cells;
    Color color = Color::None;
  };
  std::string render_paragraphs(std::size_t indent, bool color, std::size_t width) const;

  std::vector<Align> columns_;
  std::vector<Row> rows_;
};

}  // namespace llorch::base
