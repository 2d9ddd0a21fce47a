#include "tokenizer/decode.h"

#include <algorithm>
#include <charconv>

namespace llorch::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t bytes;  // of the character, or of the maximal part of one
  enum { Whole, Broken, Unfinished } state;
};

// The character at the start of `text`, which is not empty (Unicode 3.9, "maximal subparts").
Sequence first_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, Sequence::Whole};
  if (lead < 0xC2 || lead > 0xF4) return {1, Sequence::Broken};
  const std::size_t length = lead < 0xE0 ? 2U : lead < 0xF0 ? 3U : 4U;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Sequence::Unfinished};
    std::uint8_t low = 0x80, high = 0xBF;
    if (i == 1 && lead == 0xE0) low = 0xA0;
    if (i == 1 && lead == 0xED) high = 0x9F;
    if (i == 1 && lead == 0xF0) low = 0x90;
    if (i == 1 && lead == 0xF4) high = 0x8F;
    if (byte(i) < low || byte(i) > high) return {i, Sequence::Broken};
  }
  return {length, Sequence::Whole};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// <0x0A> → 10; -1 for other pieces.
int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  unsigned value = 0;
  const auto parsed = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return parsed.ec == std::errc() && parsed.ptr == piece.data() + 5 ? static_cast<int>(value) : -1;
}

}  // namespace

void Utf8Assembler::replace(std::size_t bytes, std::string& out) const {
  for (std::size_t i = 0; i < (replaces_each_byte_ ? bytes : 1); ++i) out += kReplacement;
}

void Utf8Assembler::add(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_) + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Sequence next = first_sequence(bytes);
    if (next.state == Sequence::Unfinished) {
      held_ = bytes;
      return;
    }
    if (next.state == Sequence::Whole) {
      out += bytes.substr(0, next.bytes);
    } else {
      replace(next.bytes, out);
    }
    bytes.remove_prefix(next.bytes);
  }
}

void Utf8Assembler::flush(std::string& out) {
  if (!held_.empty()) replace(held_.size(), out);
  held_.clear();
}

TextReader::TextReader(const Vocab& vocab, const DecodeRules& rules)
    : vocab_(vocab),
      rules_(rules),
      assembler_(/*replaces_each_byte=*/rules.style == DecodeRules::Style::Fused),
      to_strip_(rules.strip_left) {}

int TextReader::byte_of(std::string_view piece) const {
  const bool may_be_byte = rules_.style == DecodeRules::Style::Fused && rules_.has_byte_pieces;
  return may_be_byte ? byte_of_piece(piece) : -1;
}

std::string TextReader::spell(std::string_view piece) const {
  std::string text(piece);
  switch (rules_.style) {
    case DecodeRules::Style::ByteLevel:
      break;
    case DecodeRules::Style::Fused:
      for (const auto& [from, to] : rules_.replacements) replace_all(text, from, to);
      break;
    case DecodeRules::Style::Metaspace:
      replace_all(text, rules_.mark, is_first_ && rules_.drops_first_mark ? "" : " ");
      break;
    case DecodeRules::Style::WordPiece:
      return spell_wordpiece(piece);
    case DecodeRules::Style::Joined:
      if (!is_first_) text.insert(0, 1, ' ');
      break;
  }
  return text;
}

void TextReader::add(TokenId id, std::string& out) {
  if (!vocab_.contains(id)) return;
  const std::string_view piece = vocab_.piece(id);
  if (piece.empty()) return;
  if (rules_.style == DecodeRules::Style::ByteLevel) {
    assembler_.add(piece, out);
  } else if (rules_.style == DecodeRules::Style::Fused) {
    append_fused(piece, out);
  } else {
    out += spell(piece);
  }
  is_first_ = false;
}

std::string TextReader::bytes_of(TokenId id) const {
  if (!vocab_.contains(id)) return "";
  const std::string_view piece = vocab_.piece(id);
  const int byte = byte_of(piece);
  std::string bytes =
      byte >= 0 ? std::string(1, static_cast<char>(static_cast<std::uint8_t>(byte))) : spell(piece);
  const std::size_t strippable = assembler_.is_holding() ? 0 : to_strip_;
  const std::size_t spaces = std::min(bytes.find_first_not_of(' '), bytes.size());
  return bytes.substr(std::min(strippable, spaces));
}

void TextReader::append_fused(std::string_view piece, std::string& out) {
  std::string text;
  if (const int byte = byte_of(piece); byte >= 0) {
    const char c = static_cast<char>(static_cast<std::uint8_t>(byte));
    assembler_.add({&c, 1}, text);
  } else {
    assembler_.flush(text);
    text += spell(piece);
  }
  append_stripped(text, out);
}

void TextReader::append_stripped(std::string_view text, std::string& out) {
  while (to_strip_ > 0 && !text.empty()) {
    if (text[0] != ' ') {
      to_strip_ = 0;
      break;
    }
    text.remove_prefix(1);
    --to_strip_;
  }
  out += text;
}

std::string TextReader::spell_wordpiece(std::string_view piece) const {
  const bool continues = !is_first_ && piece.starts_with(rules_.mark);
  std::string text = is_first_ || continues ? "" : " ";
  text += continues ? piece.substr(rules_.mark.size()) : piece;
  if (rules_.cleans_up) {
    static constexpr std::pair<std::string_view, std::string_view> kCleanUps[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : kCleanUps) replace_all(text, from, to);
  }
  return text;
}

void TextReader::finish(std::string& out) {
  std::string text;
  assembler_.flush(text);
  append_stripped(text, out);
}

}  // namespace llorch::tokenizer
