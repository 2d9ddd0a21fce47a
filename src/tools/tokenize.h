// llorch-tokenize: a model's tokenizer at work, for people and for checking it against others.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llorch::tools {

// The text with its pieces told apart (in colours, or by a bar between them), then the ids.
std::string tokens_text(const tokenizer::Tokenizer& tokenizer,
                        std::span<const tokenizer::TokenId> ids, bool color);

// {"ids": [...], "pieces": [...]}; a piece that is no text by itself has its bytes as U+FFFD.
json::Object tokens_json(const tokenizer::Tokenizer& tokenizer,
                         std::span<const tokenizer::TokenId> ids);

// Ids as people write them: "1 2 3", "[1, 2, 3]". InvalidArgument names what is no id.
Result<std::vector<tokenizer::TokenId>> parse_ids(std::string_view text);

// One line of --batch: {"text": …} → {"ids", "ids_with_special", "decoded"} or {"error"}. `ids`:
// nothing added, special tokens in the text recognised; `decoded`: these ids with special tokens
// kept.
std::string batch_line(const tokenizer::Tokenizer& tokenizer, std::string_view line);

}  // namespace llorch::tools
