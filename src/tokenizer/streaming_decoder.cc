#include "tokenizer/streaming_decoder.h"

#include "tokenizer/tokenizer_parts.h"

namespace llorch::tokenizer {

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, DecodeOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      reader_(*tokenizer.parts_->vocab, tokenizer.parts_->decode) {}

std::string StreamingDecoder::decode_next(TokenId id) {
  std::string text;
  if (options_.keep_special || !tokenizer_.is_special(id)) reader_.add(id, text);
  return text;
}

std::string StreamingDecoder::flush() {
  std::string text;
  reader_.finish(text);
  return text;
}

}  // namespace llorch::tokenizer
