// What each id of a vocabulary adds to a text, as bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace llorch::worker {

struct TokenTexts {
  std::vector<std::string> shown;      // for people: special tokens as their text
  std::vector<std::string> generated;  // of a generation: special tokens add nothing
  std::size_t longest_bytes = 0;       // of any id
};

TokenTexts make_token_texts(const tokenizer::Tokenizer& tokenizer);

}  // namespace llorch::worker
