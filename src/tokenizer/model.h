// What turns one word (a pre-tokenized piece of text) into ids: byte-pair merges, unigram or
// WordPiece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/budget.h"
#include "tokenizer/types.h"

namespace llorch::tokenizer {

class WordCache;

// Buffers that a call of encode reuses from word to word. One per call; never shared by threads.
struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  struct Symbol {
    TokenId id;
    std::int32_t previous, next;  // positions; -1 at the ends
    std::uint32_t rank;           // of the merge with the next symbol
    TokenId merged;               // what that merge makes
  };
  struct Part {
    TokenId whole, left, right;
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;
  std::vector<TokenId> ids;
  std::vector<Part> parts;
  std::vector<double> best;
  std::vector<std::int32_t> back;
  std::string text;
  EncodeBudget* budget = nullptr;  // null: no bounds
  bool spend(std::size_t steps) { return budget == nullptr || budget->spend(steps); }
  std::unique_ptr<WordCache> cache;  // null until the text is long enough to be worth one
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `word`: valid UTF-8 except for byte-level models, which take any bytes. Any
  // ids, once the budget is spent.
  virtual void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const = 0;
};

}  // namespace llorch::tokenizer
