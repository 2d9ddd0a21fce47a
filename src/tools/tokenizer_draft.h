// What of a tokenizer's own files goes into a GGUF file. Private to export_tokenizer.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/tokenizer.h"
#include "tools/export_tokenizer.h"

namespace llorch::tools {

using tokenizer::kNoToken;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

inline constexpr std::string_view kSpaceMark = "▁";

Error inexpressible(std::string_view what);

// What goes into the file, apart from what a Tokenizer tells.
struct TokenizerDraft {
  std::string model;  // tokenizer.ggml.model
  std::string pre;    // byte-level models only
  std::vector<std::string> pieces;
  std::vector<tokenizer::PieceType> types;  // as many
  std::vector<float> scores;                // as many, or none
  std::vector<std::string> merges;
  bool is_spm = false;  // the next three are written
  bool adds_space_prefix = true;
  bool collapses_spaces = false;
  // The source puts no space before a text that starts with one (Metaspace); readers of GGUF always
  // do.
  bool spares_leading_space = false;
  std::string charsmap;
  TokenId eot = kNoToken, eom = kNoToken;
};

// Of a tokenizer.json; `source` is the tokenizer that it makes.
Result<TokenizerDraft> draft_json(std::string_view tokenizer_json, const Tokenizer& source,
                                  const ExportOptions& options);
// Of a SentencePiece model.
Result<TokenizerDraft> draft_sentencepiece(std::string_view model, const ExportOptions& options);

}  // namespace llorch::tools
