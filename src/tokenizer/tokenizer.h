// Text ↔ ids as a model's own tokenizer does it. Made by load.h; immutable, shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text_span.h"
#include "base/work_limit.h"
#include "tokenizer/types.h"

namespace llorch::tokenizer {

struct TokenizerParts;
class TextReader;
class TokenZones;

// What a hostile tokenizer file can make a text cost is bounded by the text's size; these bound it
// in time as well.
struct EncodeOptions {
  bool add_special = false;  // what the model wants around a text: begin and end tokens
  bool parse_special =
      false;  // "<|im_start|>" in the text is that token. Never for text that users write.
  base::WorkLimit limit = {};
};

// A text of which parts are a template's and the rest is text of users.
struct MarkedPrompt {
  std::string_view text;
  std::span<const base::TextSpan> template_spans;  // from left to right, apart from each other
};

struct DecodeOptions {
  bool keep_special = false;  // special tokens as their text, else as nothing
};

class Tokenizer {
 public:
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // InvalidArgument when the text is not UTF-8 (the message says where), longer than 1 GiB, or
  // takes the tokenizer too long (naming the file's expression where that is why); Cancelled.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  // A rendered chat: tokens that structure a conversation count where they lie wholly within a
  // span, and are plain text everywhere else. The ids are those of encode() with parse_special
  // wherever users write none of them. parse_special is not looked at.
  Result<std::vector<TokenId>> encode(const MarkedPrompt& prompt,
                                      const EncodeOptions& options = {}) const;
  // Valid UTF-8 for any ids: bytes that make no character become U+FFFD, ids that do not exist
  // nothing.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // One more than the largest id; ids without a piece (padding of the vocabulary) lie below it too.
  std::int32_t vocab_size() const;
  // The same without the filler at its end, "[PAD151936]" at 151936, with which converters make it
  // as long as the model's table.
  std::int32_t num_used_ids() const;
  // The piece as bytes: "▁" stays, byte-level pieces are the bytes they stand for. Empty when there
  // is none.
  std::string_view piece(TokenId id) const;
  std::optional<TokenId> find_piece(std::string_view piece) const;
  bool is_special(TokenId id) const;
  // Structures a conversation, special or not: see MarkedPrompt and README.md.
  bool is_control(TokenId id) const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unknown() const;
  std::optional<TokenId> padding() const;
  // Every id that ends a generation, sorted: the end of the text, of a turn, what generation_config
  // lists.
  std::span<const TokenId> end_ids() const;
  bool is_end(TokenId id) const;
  // What add_special puts around a text.
  std::span<const TokenId> prefix_ids() const;
  std::span<const TokenId> suffix_ids() const;

  // Chat templates by name, as the model's files carry them; the usual one is "default".
  std::span<const std::pair<std::string, std::string>> chat_templates() const;
  const std::string* chat_template(std::string_view name = "default") const;  // null when absent

 private:
  friend class StreamingDecoder;
  Result<std::vector<TokenId>> encode_in(std::string_view text, const TokenZones& zones,
                                         const EncodeOptions& options) const;
  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace llorch::tokenizer
