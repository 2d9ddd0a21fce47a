// Byte-pair merges by rank, over bytes (GPT-2 and its children) or characters (SentencePiece and
// its Hugging Face twin). Time is O(n log n) in the length of a word.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/types.h"
#include "tokenizer/vocab.h"

namespace llorch::tokenizer {

struct Merge {
  TokenId left, right, result;
  std::uint32_t rank;  // lower merges first; equal ranks from left to right
};

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes, not characters
  bool ignore_merges = false;  // a word that is a piece is that piece, whatever the merges say
  // Characters that are no piece: their bytes as <0xNN> pieces when all exist, else the unknown
  // piece, else nothing.
  bool byte_fallback = false;
  bool fuse_unknown = false;  // neighbouring unknown characters make one unknown piece
  TokenId unknown = kNoToken;
  std::array<TokenId, 256> byte_pieces{};  // <0xNN>, kNoToken where there is none
  // SentencePiece: characters that are no piece take part in merges and fall back afterwards. The
  // symbols that merges know them by; ids from vocab.size() up.
  std::unordered_map<char32_t, TokenId> extra_symbols;
  bool falls_back_late = false;
  std::vector<std::uint8_t>
      is_unused;  // SentencePiece's UNUSED pieces: taken apart again at the end
};

class Bpe : public Model {
 public:
  // `vocab` must outlive the object and gets its direct pieces marked: those that their own merges
  // make, so that a word equal to one needs no merging.
  Bpe(Vocab& vocab, std::span<const Merge> merges, BpeOptions options);

  void encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const override;

 private:
  struct Slot {
    std::uint64_t pair = kFree;
    std::uint32_t rank = 0;
    TokenId result = kNoToken;
  };
  struct Tree;
  struct Border {
    TokenId id;
    std::uint32_t rank;  // of the merge that makes it
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr std::uint32_t kNoRank = UINT32_MAX;
  static constexpr std::size_t kSmallWord = 32;

  const Slot* find_merge(TokenId left, TokenId right) const;
  void insert_merge(const Merge& merge);
  void mark_direct_pieces(std::span<const Merge> merges);
  static void climb(const std::vector<Tree>& trees, TokenId piece, TokenId Tree::*side,
                    std::vector<Border>& borders);
  bool stay_apart_until(const Merge& merge, std::span<const Border> lefts,
                        std::span<const Border> rights) const;
  void find_joins();

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void make_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  void merge_small(Scratch& scratch) const;
  void merge_large(Scratch& scratch) const;
  void emit(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void append_fallback(std::string_view character, std::vector<TokenId>& out) const;
  bool splits_before_space(std::string_view before) const;

  Vocab& vocab_;
  BpeOptions options_;
  std::array<TokenId, 256>
      single_{};              // byte-level: the piece of each byte; else of each ASCII character
  std::vector<Slot> merges_;  // a power of two, at most half full
  std::size_t mask_ = 0;
  // Character models see whole texts. No merge crosses the border in front of a "▁" unless a piece
  // has the character before it in front of a "▁"; so texts fall apart into words there.
  bool splits_at_spaces_ = false;
  std::vector<char32_t> joins_;  // the characters of such pieces, sorted
};

// The merges that SentencePiece's BPE does without listing them: any two neighbours whose joined
// text is a piece, best score first. Adds to options.extra_symbols the characters that only occur
// inside pieces.
std::vector<Merge> merges_from_scores(const Vocab& vocab, std::span<const float> scores,
                                      BpeOptions& options);

}  // namespace llorch::tokenizer
