// Which ids of a vocabulary may come next in a text that follows a JsonGrammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/json_grammar.h"

namespace llorch::grammar {

using TokenId = std::int32_t;

struct TokenTableParts;
struct MaskScratch;

// The bytes of every id, arranged for masking. Immutable; one for each tokenizer, shared by all
// generations.
class TokenTable {
 public:
  // `bytes[id]` is what the id adds to the text; empty for ids that add none (control tokens,
  // padding), which are never allowed. `end_ids` end a generation and are allowed where the
  // document is complete. Unsupported when a byte that a JSON text may need has no id of its own:
  // a generation could then come to a stop in the middle. InvalidArgument without an end id within
  // the vocabulary.
  static Result<std::shared_ptr<const TokenTable>> create(std::span<const std::string> bytes,
                                                          std::span<const TokenId> end_ids);
  ~TokenTable();
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;

 private:
  friend class TokenMasker;
  explicit TokenTable(std::unique_ptr<const TokenTableParts> parts);
  std::unique_ptr<const TokenTableParts> parts_;
};

// One generation's constraint: mask, draw an id, accept it, and again. Belongs to one thread.
class TokenMasker {
 public:
  TokenMasker(std::shared_ptr<const JsonGrammar> grammar, std::shared_ptr<const TokenTable> table);
  ~TokenMasker();
  TokenMasker(TokenMasker&&) noexcept;
  TokenMasker& operator=(TokenMasker&&) noexcept;

  // Sets the logit of every id that may not come next to -infinity, and leaves the others. At least
  // one stays: an end id where nothing else may come. `logits` may be longer than the vocabulary
  // (padding: never allowed). Where it is shorter the ids beyond are out of reach, and the promise
  // is off: give TokenTable::create() no more ids than the model has logits.
  void mask(std::span<float> logits);
  // The same as bits: id i may follow where bit i % 32 of word i / 32 is set; all others are clear.
  void allow(std::span<std::uint32_t> ids);
  // The id that was chosen. False, and nothing changes, when it may not come next. After an end id
  // only end ids may follow.
  bool accept(TokenId id);

  // Of the text accepted so far.
  bool is_complete() const { return state_.is_complete(); }

 private:
  // Valid until the next call.
  std::span<const std::uint64_t> find_allowed();

  JsonState state_;
  std::shared_ptr<const TokenTable> table_;
  std::unique_ptr<MaskScratch> scratch_;
  bool ended_ = false;
};

}  // namespace llorch::grammar
