// Any bytes as text: refused when not UTF-8, else a round trip for byte-level tokenizers; and any
// bytes as ids.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/streaming_decoder.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch::tokenizer;
  static const Tokenizer bytes = test::load_json_text(test::byte_level_json());
  static const Tokenizer pieces = test::load_json_text(test::sentencepiece_json());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_text = find_invalid_utf8(text) == text.size();
  for (const bool parses : {false, true}) {
    const auto ids = bytes.encode(text, {.parse_special = parses});
    CHECK(ids.ok() == is_text);
    if (is_text) CHECK(bytes.decode(ids.value(), {.keep_special = true}) == text);
    CHECK(pieces.encode(text, {.parse_special = parses}).ok() == is_text);
  }
  // The first bytes as borders of what a template wrote.
  std::vector<llorch::base::TextSpan> spans;
  for (std::size_t i = 0, at = 0; i + 1 < size && i < 8; i += 2) {
    const std::size_t begin = at + 1 + data[i] % 16;
    at = begin + 1 + data[i + 1] % 16;
    if (at > size) break;
    spans.push_back({begin, at});
  }
  const auto marked = bytes.encode(MarkedPrompt{text, spans});
  CHECK(marked.ok() == is_text);
  if (is_text) CHECK(bytes.decode(marked.value(), {.keep_special = true}) == text);
  const auto unmarked = pieces.encode(MarkedPrompt{text, {}});
  CHECK(unmarked.ok() == is_text);
  for (std::size_t i = 0; is_text && i < unmarked->size(); ++i)
    CHECK((*unmarked)[i] == 0 || !pieces.is_control((*unmarked)[i]));
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i + 1 < size; i += 2) ids.push_back((data[i] << 8 | data[i + 1]) % 300);
  for (const Tokenizer* tokenizer : {&bytes, &pieces}) {
    StreamingDecoder decoder(*tokenizer, {.keep_special = true});
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = decoder.decode_next(id);
      CHECK(find_invalid_utf8(piece) == piece.size());
      streamed += piece;
    }
    CHECK(streamed + decoder.flush() == tokenizer->decode(ids, {.keep_special = true}));
  }
  return 0;
}
