#include "tokenizer/wordpiece.h"

#include "tokenizer/unicode.h"

namespace llorch::tokenizer {

void WordPiece::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  const std::size_t first = out.size();
  const auto give_up = [&] {
    out.resize(first);
    if (options_.unknown != kNoToken) out.push_back(options_.unknown);
  };
  std::size_t characters = 0;
  for (std::size_t i = 0; i < word.size(); i += utf8_length(word[i])) ++characters;
  if (characters > options_.max_characters) return give_up();

  std::string& candidate = scratch.text;
  for (std::size_t begin = 0; begin < word.size();) {
    candidate = begin == 0 ? "" : options_.continuation;
    const std::size_t prefix = candidate.size();
    candidate += word.substr(begin);
    TokenId id = vocab_.id_of(candidate);
    while (id == kNoToken) {
      if (!scratch.spend(8 + candidate.size() / 2)) return;
      candidate.resize(candidate.size() - utf8_last(candidate).bytes);
      if (candidate.size() <= prefix) return give_up();
      id = vocab_.id_of(candidate);
    }
    out.push_back(id);
    begin += candidate.size() - prefix;
  }
}

}  // namespace llorch::tokenizer
