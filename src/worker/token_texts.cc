#include "worker/token_texts.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace llorch::worker {
namespace {

constexpr std::string_view kMark = "▁";  // SentencePiece's space

// "<0x0A>", a byte of SentencePiece.
std::optional<char> byte_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

std::string read_piece(std::string_view piece) {
  if (const std::optional<char> byte = byte_piece(piece)) return std::string(1, *byte);
  std::string text(piece);
  for (std::size_t at = 0; (at = text.find(kMark, at)) != std::string::npos; ++at)
    text.replace(at, kMark.size(), " ");
  return text;
}

}  // namespace

TokenTexts make_token_texts(const tokenizer::Tokenizer& tokenizer) {
  TokenTexts texts;
  const auto size = static_cast<std::size_t>(tokenizer.vocab_size());
  texts.shown.reserve(size);
  texts.generated.resize(size);
  // Byte-level vocabularies hold bytes as they are, and "▁" there is a character like others.
  const bool has_marks = tokenizer.find_piece(kMark).has_value();
  for (std::size_t i = 0; i < size; ++i) {
    const auto id = static_cast<tokenizer::TokenId>(i);
    const std::string_view piece = tokenizer.piece(id);
    const bool is_special = tokenizer.is_special(id);
    texts.shown.push_back(has_marks && !is_special ? read_piece(piece) : std::string(piece));
    if (!is_special) texts.generated[i] = texts.shown.back();
    texts.longest_bytes = std::max(texts.longest_bytes, texts.shown.back().size());
  }
  return texts;
}

}  // namespace llorch::worker
