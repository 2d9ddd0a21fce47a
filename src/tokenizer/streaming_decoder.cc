#include "tokenizer/streaming_decoder.h"

#include "tokenizer/tokenizer_parts.h"

namespace llorch::tokenizer {

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options,
                                   std::span<const TokenId> prompt)
    : tokenizer_(tokenizer),
      options_(options),
      reader_(*tokenizer.parts_->vocab, tokenizer.parts_->decode) {
  for (const TokenId id : prompt) decode_next(id);
}

std::string StreamingDecoder::bytes_of(TokenId id) const {
  return tokenizer_.is_special(id) ? std::string(tokenizer_.piece(id)) : reader_.bytes_of(id);
}

std::string StreamingDecoder::decode_next(TokenId id, bool shows_special) {
  std::string text;
  if (shows_special || options_.keep_special || !tokenizer_.is_special(id)) reader_.add(id, text);
  return text;
}

std::string StreamingDecoder::flush() {
  std::string text;
  reader_.finish(text);
  return text;
}

}  // namespace llorch::tokenizer
