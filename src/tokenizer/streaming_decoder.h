// Ids → text piece by piece, for a generation that is still going on.
#pragma once

#include <string>

#include "tokenizer/decode.h"
#include "tokenizer/tokenizer.h"

namespace llorch::tokenizer {

// The pieces joined are what Tokenizer::decode gives for all ids at once; each is valid UTF-8. Held
// back is only the start of a character whose rest has not come. Belongs to one thread; the
// tokenizer must outlive it.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options = {});

  std::string decode_next(TokenId id);  // may be empty
  std::string flush();                  // the end: what was held, as U+FFFD. Nothing may follow.

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  TextReader reader_;
};

}  // namespace llorch::tokenizer
