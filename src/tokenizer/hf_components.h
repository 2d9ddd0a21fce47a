// The named parts of a tokenizer.json ("normalizer", "pre_tokenizer", "post_processor", "decoder")
// → our own. A part, or an option of one, that we do not have is Unsupported by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/types.h"

namespace llorch::tokenizer {

// null reads as no steps.
Result<std::vector<NormalizeStep>> read_normalizer(const json::Value& value);

struct PreTokenizerParts {
  std::vector<SplitRule> rules;
  bool is_byte_level = false;  // words go to the model as bytes
};
Result<PreTokenizerParts> read_pre_tokenizer(const json::Value& value);

struct PostProcessor {
  std::vector<TokenId> prefix, suffix;
};
Result<PostProcessor> read_post_processor(const json::Value& value);

Result<DecodeRules> read_decoder(const json::Value& value);

Result<std::string> decode_base64(std::string_view text);

}  // namespace llorch::tokenizer
