// UTF-8 and Unicode classes. The classes are those of Unicode 16 whatever version the system's
// libraries have: two machines must not tokenize a new letter differently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::tokenizer {

enum class Category : std::uint8_t {
  Cn,
  Cc,
  Cf,
  Co,
  Ll,
  Lm,
  Lo,
  Lt,
  Lu,
  Mc,
  Me,
  Mn,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Pe,
  Pf,
  Pi,
  Po,
  Ps,
  Sc,
  Sk,
  Sm,
  So,
  Zl,
  Zp,
  Zs,
};

// Category and the three classes that expressions ask for most, one byte per code point in a
// two-stage table. Made once, on first use.
class UnicodeTable {
 public:
  static const UnicodeTable& instance();

  Category category(char32_t c) const { return static_cast<Category>(entry(c) & kCategoryMask); }
  bool is_letter(char32_t c) const { return (entry(c) & kLetter) != 0; }  // \p{L}
  bool is_number(char32_t c) const { return (entry(c) & kNumber) != 0; }  // \p{N}
  bool is_space(char32_t c) const { return (entry(c) & kSpace) != 0; }    // White_Space
  bool is_mark(char32_t c) const;
  bool is_punctuation(char32_t c) const;  // \p{P}
  bool is_symbol(char32_t c) const;       // \p{S}

  // What the Rust tokenizers' Bert parts go by, whose tables are of an older Unicode.
  Category old_category(char32_t c) const;

  static constexpr std::uint8_t kCategoryMask = 0x1F;
  static constexpr std::uint8_t kSpace = 0x20;
  static constexpr std::uint8_t kLetter = 0x40;
  static constexpr std::uint8_t kNumber = 0x80;
  std::uint8_t entry(char32_t c) const {
    return blocks_[std::size_t{block_of_[c >> kBlockBits]} << kBlockBits | (c & kBlockMask)];
  }

 private:
  UnicodeTable();
  static constexpr unsigned kBlockBits = 7;
  static constexpr char32_t kBlockMask = (1U << kBlockBits) - 1;

  std::array<std::uint16_t, (0x110000U >> kBlockBits)> block_of_{};
  std::vector<std::uint8_t> blocks_;
};

// The first byte that is not part of valid UTF-8; text.size() when all of it is.
std::size_t find_invalid_utf8(std::string_view text);

// Bytes of the character that starts with `lead` in valid UTF-8.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<std::uint8_t>(lead);
  return byte < 0x80 ? 1U : byte < 0xE0 ? 2U : byte < 0xF0 ? 3U : 4U;
}

struct Utf8Char {
  char32_t code_point;
  std::size_t bytes;
};

// The character at `position` of valid UTF-8; position < text.size().
inline Utf8Char utf8_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return static_cast<std::uint8_t>(text[position + i]);
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// The last character of valid, non-empty UTF-8.
Utf8Char utf8_last(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);

// GPT-2's map between bytes and printable characters: byte-level vocabularies are written in it.
// The byte written as this character, or -1.
int char_to_byte(char32_t c);
// The bytes that `written` stands for; false (out unspecified) when a character is none of the map.
bool bytes_from_chars(std::string_view written, std::string& out);

}  // namespace llorch::tokenizer
