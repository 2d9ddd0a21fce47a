#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace llorch::tokenizer {
namespace {

struct CategoryRange {
  char32_t first;
  Category category;
};

using enum Category;
constexpr CategoryRange kRanges[] = {
#include "tokenizer/unicode_ranges.inc"
};

struct CodePointRange {
  char32_t first, last;
};

constexpr CodePointRange kUnknownToOld[] = {
#include "tokenizer/unicode_old.inc"
};

bool is_white_space(char32_t c, Category category) {
  return category == Zs || category == Zl || category == Zp || (c >= 9 && c <= 13) || c == 0x85;
}

std::uint8_t make_entry(char32_t c, Category category) {
  auto entry = static_cast<std::uint8_t>(category);
  if (category >= Ll && category <= Lu) entry |= UnicodeTable::kLetter;
  if (category >= Nd && category <= No) entry |= UnicodeTable::kNumber;
  if (is_white_space(c, category)) entry |= UnicodeTable::kSpace;
  return entry;
}

bool is_printable_byte(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The bytes that print stand for themselves; the other 68, in order, for U+0100 and up.
using ByteMap = std::array<std::int16_t, 0x144>;  // by character; -1: none

const ByteMap& byte_map() {
  static const ByteMap map = [] {
    ByteMap bytes;
    bytes.fill(-1);
    std::size_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte)
      bytes[is_printable_byte(byte) ? byte : next++] = static_cast<std::int16_t>(byte);
    return bytes;
  }();
  return map;
}

// Bytes of the well-formed character at the start of `text`, or 0 (Unicode table 3-7).
std::size_t well_formed_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto continues = [&](std::size_t i, std::uint8_t low = 0x80, std::uint8_t high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const std::uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;
    const std::uint8_t high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const std::uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

UnicodeTable::UnicodeTable() {
  using Block = std::array<std::uint8_t, std::size_t{1} << kBlockBits>;
  std::map<Block, std::uint16_t> known;
  const CategoryRange* range = std::begin(kRanges);
  Block block = {};
  for (char32_t first = 0; first < 0x110000; first += kBlockMask + 1) {
    for (char32_t c = first; c <= first + kBlockMask; ++c) {
      while (range + 1 != std::end(kRanges) && range[1].first <= c) ++range;
      block[c - first] = make_entry(c, range->category);
    }
    const auto [found, is_new] = known.try_emplace(block, static_cast<std::uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    block_of_[first >> kBlockBits] = found->second;
  }
}

const UnicodeTable& UnicodeTable::instance() {
  static const UnicodeTable table;
  return table;
}

Category UnicodeTable::old_category(char32_t c) const {
  if (c == 0x166D || c == 0x111C9) return Po;  // since then a symbol and a mark
  if (c == 0x1734 || c == 0x1171E) return Mn;  // since then spacing marks
  const auto* after =
      std::upper_bound(std::begin(kUnknownToOld), std::end(kUnknownToOld), c,
                       [](char32_t value, CodePointRange range) { return value < range.first; });
  return after != std::begin(kUnknownToOld) && c <= after[-1].last ? Cn : category(c);
}

bool UnicodeTable::is_mark(char32_t c) const {
  const Category found = category(c);
  return found >= Mc && found <= Mn;
}

bool UnicodeTable::is_punctuation(char32_t c) const {
  const Category found = category(c);
  return found >= Pc && found <= Ps;
}

bool UnicodeTable::is_symbol(char32_t c) const {
  const Category found = category(c);
  return found >= Sc && found <= So;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t word = 0;
    while (i + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080U) != 0) break;
      i += sizeof word;
    }
    if (i == text.size()) break;
    const std::size_t length = well_formed_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

Utf8Char utf8_last(std::string_view text) {
  std::size_t start = text.size() - 1;
  while (start > 0 && (static_cast<std::uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return utf8_at(text, start);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) {
    out += static_cast<char>(static_cast<std::uint8_t>(byte));
  };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

int char_to_byte(char32_t c) {
  const ByteMap& map = byte_map();
  return c < map.size() ? map[c] : -1;
}

bool bytes_from_chars(std::string_view written, std::string& out) {
  out.resize(written.size());
  const ByteMap& map = byte_map();
  std::size_t count = 0;
  for (std::size_t i = 0; i < written.size();) {
    const Utf8Char c = utf8_at(written, i);
    if (c.code_point >= map.size() || map[c.code_point] < 0) return false;
    out[count++] = static_cast<char>(static_cast<std::uint8_t>(map[c.code_point]));
    i += c.bytes;
  }
  out.resize(count);
  return true;
}

}  // namespace llorch::tokenizer
