// What the loaders share: SentencePiece vocabularies, side files, and the last step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/load.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"

namespace llorch::tokenizer {

// Longest piece a vocabulary may have. Real ones stay below 1 KB; the bound keeps loading linear.
inline constexpr std::size_t kMaxPieceBytes = 4096;

// Kinds of pieces as SentencePiece numbers them; GGUF took them over.
enum class PieceType : std::uint8_t { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };

// A SentencePiece vocabulary, wherever it came from.
struct SpmVocab {
  std::vector<std::string_view> pieces;
  std::vector<float> scores;
  std::vector<PieceType> types;
  bool is_unigram = false;
  bool has_byte_fallback = false;
  bool adds_space_prefix = true;
  bool collapses_spaces = false;
  bool escapes_spaces = true;
  std::string_view charsmap;  // may be empty
};
// Sets vocabulary, model, normalizer, added tokens and decoding; `unknown` must be set before.
Status make_spm(const SpmVocab& source, TokenizerParts& parts);

// <0xNN> pieces by their byte.
std::array<TokenId, 256> find_byte_pieces(std::span<const std::string_view> pieces);

// Refuses empty vocabularies, too many and too long pieces, and pieces that are not UTF-8.
Status check_pieces(std::span<const std::string_view> pieces);

// Special tokens and chat templates of tokenizer_config.json and the other files of a folder.
// Changes prefix and suffix where the files say add_bos_token or add_eos_token.
Status read_side_files(const HuggingFaceFiles& files, TokenizerParts& parts);

Result<Tokenizer> finish(std::unique_ptr<TokenizerParts> parts);

}  // namespace llorch::tokenizer
