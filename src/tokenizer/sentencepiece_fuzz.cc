// Any bytes as tokenizer.model: an error, or a tokenizer that works.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/load.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  const Result<tokenizer::Tokenizer> loaded =
      tokenizer::from_sentencepiece({reinterpret_cast<const char*>(data), size});
  if (!loaded.ok()) {
    CHECK(!loaded.error().message.empty());
    return 0;
  }
  const auto ids =
      loaded->encode("ab  c é\n</s> 你🙂", {.add_special = true, .parse_special = true});
  if (!ids.ok()) return 0;
  const std::string decoded = loaded->decode(ids.value(), {.keep_special = true});
  CHECK(tokenizer::find_invalid_utf8(decoded) == decoded.size());
  return 0;
}
