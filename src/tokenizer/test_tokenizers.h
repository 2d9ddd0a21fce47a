// Tiny tokenizers for tests and fuzzers, written out as their files have them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/load.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer::test {

inline std::string json_quoted(std::string_view text) {
  return json::serialize(json::Value(json::Value(std::string(text))));
}

// The character that stands for a byte in byte-level vocabularies.
inline char32_t byte_to_char(unsigned byte) {
  char32_t c = 0;
  while (char_to_byte(c) != static_cast<int>(byte)) ++c;
  return c;
}

// Byte-level BPE: all 256 bytes, "he" "ll" "hell" "hello" " hello", and <|end|>, <|im_start|>
// (special) and <tool> (not special). `extra` goes into the top-level object.
inline std::string byte_level_json(std::string_view extra = "", std::string_view model_extra = "") {
  std::string vocab;
  int id = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string c;
    append_utf8(c, byte_to_char(byte));
    vocab += fmt::format("{}{}:{}", vocab.empty() ? "" : ",", json_quoted(c), id++);
  }
  for (const std::string_view piece : {"he", "ll", "hell", "hello", "Ġhello"})
    vocab += fmt::format(",{}:{}", json_quoted(piece), id++);
  return fmt::format(
      R"({{"added_tokens":[{{"id":261,"content":"<|end|>","special":true}},{{"id":262,"content":"<|im_start|>","special":true}},)"
      R"({{"id":264,"content":"<tool>","special":false}}],"normalizer":null,)"
      R"("pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}},"post_processor":null,)"
      R"("decoder":{{"type":"ByteLevel"}},{}"model":{{"type":"BPE","vocab":{{{}}},"merges":["h e","l l","he ll","hell o","Ġ hello"]{}}}}})",
      extra, vocab, model_extra);
}

// SentencePiece-style BPE: <unk> <s> </s>, the 256 bytes, "▁", a few letters and merges of them.
inline std::string sentencepiece_json() {
  std::string vocab = R"("<unk>":0,"<s>":1,"</s>":2)";
  int id = 3;
  for (int byte = 0; byte < 256; ++byte) vocab += fmt::format(",\"<0x{:02X}>\":{}", byte, id++);
  for (const std::string_view piece : {"▁", "a", "b", "c", "é", "ab", "▁ab", "▁▁"})
    vocab += fmt::format(",{}:{}", json_quoted(piece), id++);
  return fmt::format(
      R"({{"added_tokens":[{{"id":0,"content":"<unk>","special":true}},{{"id":1,"content":"<s>","special":true}},)"
      R"({{"id":2,"content":"</s>","special":true}}],"normalizer":{{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":"▁"}},)"
      R"({{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}}]}},"pre_tokenizer":null,"post_processor":null,)"
      R"("decoder":{{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"▁"}},"content":" "}},{{"type":"ByteFallback"}},)"
      R"({{"type":"Fuse"}},{{"type":"Strip","content":" ","start":1,"stop":0}}]}},)"
      R"("model":{{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{{{}}},"merges":["a b","▁ ab","▁ ▁"]}}}})",
      vocab);
}

inline Tokenizer load_json_text(const std::string& text) {
  return from_tokenizer_json({.tokenizer_json = text}).take();
}

}  // namespace llorch::tokenizer::test
