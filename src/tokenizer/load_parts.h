// What the loaders share: SentencePiece vocabularies, side files, and the last step.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
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
// A tokenizer.model as read; views are into its text.
struct SpmFile {
  SpmVocab vocab;
  TokenId unknown = 0, bos = 1, eos = 2, padding = kNoToken;  // TrainerSpec's defaults
};
Result<SpmFile> read_sentencepiece(std::string_view model);

// Sets vocabulary, model, normalizer, added tokens and decoding; `unknown` must be set before.
Status make_spm(const SpmVocab& source, TokenizerParts& parts);

// <0xNN> pieces by their byte.
std::array<TokenId, 256> find_byte_pieces(std::span<const std::string_view> pieces);

// Refuses empty vocabularies, too many and too long pieces, and pieces that are not UTF-8.
Status check_pieces(std::span<const std::string_view> pieces);

// Special tokens and chat templates of tokenizer_config.json and the other files of a folder.
// Changes prefix and suffix where the files say add_bos_token or add_eos_token.
Status read_side_files(const HuggingFaceFiles& files, TokenizerParts& parts);

// The files of one folder as text; those that are not there stay empty.
struct FolderFiles {
  std::string tokenizer_json, tokenizer_config, generation_config, config, chat_template;
  std::string sentencepiece;

  HuggingFaceFiles views() const {
    return {tokenizer_json, tokenizer_config, generation_config, config, chat_template};
  }
};
// The file that load_tokenizer(path) reads first: a .gguf, a tokenizer.json or a tokenizer.model.
Result<std::filesystem::path> find_tokenizer_file(const std::filesystem::path& path);
// That file, unless it is a .gguf, and those beside it.
Result<FolderFiles> read_folder_files(const std::filesystem::path& tokenizer_file);

Result<Tokenizer> finish(std::unique_ptr<TokenizerParts> parts);

}  // namespace llorch::tokenizer
