// What a tokenizer is made of. Loaders fill it; finish_parts() derives the rest and checks it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decode.h"
#include "tokenizer/model.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/types.h"
#include "tokenizer/vocab.h"

namespace llorch::tokenizer {

struct TokenizerParts {
  std::unique_ptr<Vocab> vocab;  // every id, added tokens included
  std::unique_ptr<Model> model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  DecodeRules decode;
  std::vector<TokenId> prefix, suffix;  // around a text with special tokens
  TokenId bos = kNoToken, eos = kNoToken, unknown = kNoToken, padding = kNoToken;
  std::vector<TokenId> ends;
  std::vector<std::pair<std::string, std::string>> chat_templates;

  // Derived.
  AddedTokenMatcher raw_matcher, normalized_matcher;
  AddedTokenMatcher control_matcher;  // the normalized control tokens, as they are written
  std::vector<bool> is_special, is_control;
};

// Checks every id against the vocabulary, adds the end-of-turn tokens that go by their well-known
// names, sorts `ends` and builds the matchers.
Status finish_parts(TokenizerParts& parts);

// "[PAD151936]" at 151936: filler that makes the vocabulary a round number. Nothing in a text means
// it.
bool is_filler(std::string_view piece, TokenId id);

}  // namespace llorch::tokenizer
