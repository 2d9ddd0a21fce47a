// WordPiece: the longest piece from the left, again and again, as BERT and its children have it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/types.h"
#include "tokenizer/vocab.h"

namespace llorch::tokenizer {

struct WordPieceOptions {
  TokenId unknown = kNoToken;  // for words that cannot be made of pieces
  std::string continuation = "##";
  std::size_t max_characters = 100;  // longer words are unknown
};

class WordPiece : public Model {
 public:
  WordPiece(const Vocab& vocab, WordPieceOptions options)
      : vocab_(vocab), options_(std::move(options)) {}

  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const override;

 private:
  const Vocab& vocab_;
  WordPieceOptions options_;
};

}  // namespace llorch::tokenizer
