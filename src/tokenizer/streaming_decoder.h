// Ids → text piece by piece, for a generation that is still going on.
#pragma once

#include <span>
#include <string>

#include "tokenizer/decode.h"
#include "tokenizer/tokenizer.h"

namespace llorch::tokenizer {

// The pieces joined are what Tokenizer::decode gives for the prompt and all ids at once, less what
// it gives for the prompt: after "Once upon a", "▁time" reads " time", and without a prompt
// (special tokens are none) "time" where the model's files say so. Each piece is valid UTF-8. Held
// back is only the start of a character whose rest has not come. Belongs to one thread; the
// tokenizer must outlive it.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options = {},
                            std::span<const TokenId> prompt = {});

  // What `id` adds to the text if it comes next, as bytes; a special token as its name.
  std::string bytes_of(TokenId id) const;
  // May be empty. `shows_special`: a special token's name, whatever the options say.
  std::string decode_next(TokenId id, bool shows_special = false);
  std::string flush();  // the end: what was held, as U+FFFD. Nothing may follow.

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  TextReader reader_;
};

}  // namespace llorch::tokenizer
