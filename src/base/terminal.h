// What programs print for people: sizes they can read, columns that line up, colour where there is
// a terminal, and nothing from a file that could command one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::base {

enum class Color : std::uint8_t { None, Bold, Dim, Red, Green, Yellow };

// Whether to colour what goes to `stream`: it is a terminal, and the user did not set NO_COLOR
// (`no_color`: the value of that variable, null when unset) to anything.
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

// Rows of cells, printed with every column as wide as its widest cell. Cells are printable text.
class TextTable {
 public:
  enum class Align : std::uint8_t { Left, Right };

  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // One cell for each column; the colour goes to the whole row.
  void add_row(std::vector<std::string> cells, Color color = Color::None);

  // Lines with `indent` spaces in front, two spaces between columns, none at the end.
  std::string render(std::size_t indent, bool color) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Color color = Color::None;
  };

  std::vector<Align> columns_;
  std::vector<Row> rows_;
};

}  // namespace llorch::base
