// Prompts for models that can write what stands between two texts.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "formats/metadata.h"
#include "tokenizer/tokenizer.h"

namespace llorch::worker {

// The special tokens of a model that was trained to fill gaps.
struct FillTokens {
  tokenizer::TokenId prefix = 0;                  // the text before follows
  tokenizer::TokenId suffix = 0;                  // the text after follows
  std::optional<tokenizer::TokenId> middle = {};  // the answer follows
  bool suffix_first = false;
};

// By the keys of a GGUF file where it has them, else by the names that vocabularies give them;
// none: the model cannot.
std::optional<FillTokens> find_fill_tokens(const formats::Metadata& metadata,
                                           const tokenizer::Tokenizer& tokenizer);

// What the model reads, from the ids of both texts.
std::vector<tokenizer::TokenId> fill_prompt(const FillTokens& tokens,
                                            std::span<const tokenizer::TokenId> begin,
                                            std::span<const tokenizer::TokenId> before,
                                            std::span<const tokenizer::TokenId> after);

}  // namespace llorch::worker
