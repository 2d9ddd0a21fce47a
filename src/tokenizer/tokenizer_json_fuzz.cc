// Any bytes as tokenizer.json: an error, or a tokenizer that encodes and decodes without harm.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/load.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<tokenizer::Tokenizer> loaded =
      tokenizer::from_tokenizer_json({.tokenizer_json = text});
  if (!loaded.ok()) {
    CHECK(!loaded.error().message.empty());
    return 0;
  }
  const Result<std::vector<tokenizer::TokenId>> ids =
      loaded->encode("ab  c é\n<|x|> 123 你🙂", {.add_special = true, .parse_special = true});
  if (!ids.ok()) return 0;
  for (const tokenizer::TokenId id : ids.value()) CHECK(id >= 0 && id < loaded->vocab_size());
  const std::string decoded = loaded->decode(ids.value(), {.keep_special = true});
  CHECK(tokenizer::find_invalid_utf8(decoded) == decoded.size());
  return 0;
}
