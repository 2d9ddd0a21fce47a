#include "base/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/enum_names.h"
#include "base/utf8.h"

namespace llorch::base {
namespace {

std::string_view escape_of(Color color) {
  static constexpr EnumNames<Color::Yellow> kNames("", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m",
                                                   "\x1b[33m");
  return kNames[color];
}

// Scaled by `step` into the largest unit that leaves at least 1, with three digits that matter.
std::string scaled(std::int64_t number, double step, std::span<const std::string_view> units) {
  double value = static_cast<double>(number);
  std::size_t unit = 0;
  // 999.5 and more would be written as four digits.
  while (value >= step - 0.5 * step / 1000 && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  const std::string_view separator = units[unit].empty() ? "" : " ";
  return fmt::format("{:.{}f}{}{}", value, decimals, separator, units[unit]);
}

// C0 and DEL are one byte, C1 is U+0080..U+009F: two.
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7f;
  return lead == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;
}

// A dumb one shows escape sequences as they are.
bool takes_escapes(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  const bool is_dumb = kind != nullptr && std::string_view(kind) == "dumb";
  return !is_dumb && isatty(fileno(stream)) == 1;
}

}  // namespace

std::string progress_bar(double fraction, std::size_t width) {
  const double bounded = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  const auto filled = static_cast<std::size_t>(bounded * static_cast<double>(width));
  return "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
}

StatusLine::StatusLine(std::FILE* stream) : stream_(takes_escapes(stream) ? stream : nullptr) {}

StatusLine::~StatusLine() {
  clear();
}

void StatusLine::show(std::string_view text) {
  if (stream_ == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (is_shown_ && now - last_shown_ < std::chrono::milliseconds(100)) return;
  const std::string line = fmt::format("\r{}\x1b[K", printable(text));
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fflush(stream_);
  last_shown_ = now;
  is_shown_ = true;
}

void StatusLine::clear() {
  if (!is_shown_) return;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
  is_shown_ = false;
}

bool wants_color(std::FILE* stream, const char* no_color) {
  const bool refused = no_color != nullptr && *no_color != '\0';
  return !refused && takes_escapes(stream);
}

std::string paint(std::string_view text, Color color, bool enabled) {
  if (!enabled || color == Color::None) return std::string(text);
  return fmt::format("{}{}\x1b[0m", escape_of(color), text);
}

std::string printable(std::string_view text) {
  const std::string valid = to_valid_utf8(text);
  std::string out;
  for (std::size_t begin = 0; begin < valid.size();) {
    std::size_t end = begin + 1;
    while (end < valid.size() && (static_cast<unsigned char>(valid[end]) & 0xc0) == 0x80) ++end;
    const std::string_view sequence = std::string_view(valid).substr(begin, end - begin);
    out += is_control(sequence) ? std::string_view("\xef\xbf\xbd") : sequence;
    begin = end;
  }
  return out;
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::size_t word_width = count_scalars(text.substr(0, end));
    const bool at_start = column == indent;
    if (!at_start && column + 1 + word_width > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!at_start) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += word_width;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string human_bytes(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {"B",   "KiB", "MiB",
                                                             "GiB", "TiB", "PiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_count(std::int64_t count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "B", "T"};
  return scaled(count, 1000, kUnits);
}

void TextTable::add_row(std::vector<std::string> cells, Color color) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back({std::move(cells), color});
}

std::string TextTable::render_paragraphs(std::size_t indent, bool color, std::size_t width) const {
  const std::vector<std::string>& names = rows_.front().cells;
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, count_scalars(name));
  const std::size_t column = indent + longest + 2;
  std::string text;
  for (std::size_t row = 1; row < rows_.size(); ++row) {
    if (row > 1) text += '\n';
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& cell = rows_[row].cells[i];
      if (cell.empty()) continue;
      text += std::string(indent, ' ') + paint(names[i], Color::Bold, color) +
              std::string(column - indent - count_scalars(names[i]), ' ') +
              paint(wrap(cell, width, column), rows_[row].color, color) + '\n';
    }
  }
  return text;
}

std::string TextTable::render(std::size_t indent, bool color, std::size_t width) const {
  std::vector<std::size_t> widths(columns_.size());
  for (const Row& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], count_scalars(row.cells[i]));
  }
  const std::size_t gaps = 2 * (std::max<std::size_t>(1, widths.size()) - 1);
  const std::size_t total = std::accumulate(widths.begin(), widths.end(), indent + gaps);
  if (total > width && rows_.size() > 1) return render_paragraphs(indent, color, width);
  std::string text;
  for (const Row& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string padding(widths[i] - count_scalars(row.cells[i]), ' ');
      if (i > 0) line += "  ";
      line += columns_[i] == Align::Right ? padding + row.cells[i] : row.cells[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += std::string(indent, ' ') + paint(line, row.color, color) + '\n';
  }
  return text;
}

}  // namespace llorch::base
