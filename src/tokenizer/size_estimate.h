// How large a tokenizer will be, without making it: counts from its files, in a few milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace llorch::formats {
class Metadata;
}

namespace llorch::tokenizer {

struct TokenizerSize {
  std::int64_t pieces = 0;
  std::int64_t merges = 0;  // also those that SentencePiece does without listing them
};

// The tokenizer that load_tokenizer would load. Fails where no file is found; a file that turns out
// to be wrong inside is load_tokenizer's to refuse.
Result<TokenizerSize> measure_tokenizer(const std::filesystem::path& path);

// GGUF's "tokenizer.ggml.*".
TokenizerSize measure_gguf(const formats::Metadata& metadata);

}  // namespace llorch::tokenizer
