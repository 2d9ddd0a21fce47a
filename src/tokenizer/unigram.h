// Unigram: the cut of a text into pieces with the best sum of scores (Viterbi), as SentencePiece's
// unigram models and T5-like tokenizers have it. Linear in the text, for a bounded length of
// pieces.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/types.h"
#include "tokenizer/vocab.h"

namespace llorch::tokenizer {

struct UnigramOptions {
  TokenId unknown = kNoToken;
  bool byte_fallback = false;
  std::array<TokenId, 256> byte_pieces{};  // <0xNN>, kNoToken where there is none
};

class Unigram : public Model {
 public:
  // Pieces that vocab.find() knows take part. `scores` are finite, one for each id.
  Unigram(const Vocab& vocab, std::span<const double> scores, const UnigramOptions& options);

  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const override;

 private:
  struct Slot {
    std::uint64_t edge = kFree;  // (node, byte)
    std::uint32_t child = 0;
    TokenId id = kNoToken;  // the piece that ends in the child
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  Slot* find_slot(std::vector<Slot>& slots, std::uint64_t edge) const;
  const Slot* find_edge(std::uint32_t node, std::uint8_t byte) const;
  void insert(std::string_view piece, TokenId id);
  void grow();
  void append_unknown(std::string_view text, std::vector<TokenId>& out) const;

  std::vector<double> scores_;
  double unknown_score_ = 0;
  UnigramOptions options_;
  std::vector<Slot> slots_;
  std::size_t num_edges_ = 0;
  std::uint32_t num_nodes_ = 1;
};

}  // namespace llorch::tokenizer
