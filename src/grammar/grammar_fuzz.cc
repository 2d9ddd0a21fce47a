// Any bytes: a schema, a newline, and choices. The compiler refuses it with a message, or every
// text that the choices write under it ends, parses and (for the mask) was allowed id by id.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/test_vocabulary.h"
#include "grammar/token_mask.h"

namespace {

using namespace llorch;
using grammar::TokenId;

constexpr std::size_t kMaxSteps = 100;

void write(grammar::TokenMasker masker, grammar::JsonState state, std::string_view choices) {
  static const std::vector<std::string> bytes = grammar::test::small_vocabulary();
  std::string text;
  for (std::size_t step = 0; step < kMaxSteps && step < choices.size(); ++step) {
    const std::vector<TokenId> ids = grammar::test::allowed_ids(masker, bytes.size());
    CHECK(!ids.empty(), text);
    const TokenId id = ids[static_cast<std::uint8_t>(choices[step]) % ids.size()];
    CHECK(masker.accept(id), text);
    if (id == grammar::test::kEndId) {
      const Result<json::Value> value = json::parse(text);
      // A free key may come twice.
      CHECK(value.ok() || value.error().message.find("twice") != std::string::npos, text);
      return;
    }
    text += bytes[static_cast<std::size_t>(id)];
    for (const char c : bytes[static_cast<std::size_t>(id)]) {
      CHECK(state.advance(static_cast<std::uint8_t>(c)), text);
    }
    CHECK(state.is_complete() == masker.is_complete(), text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto table = grammar::test::small_table();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(input.find('\n'), input.size());
  const Result<json::Value> schema = json::parse(input.substr(0, line));
  if (!schema.ok()) return 0;
  const auto compiled = grammar::compile_json_schema(schema.value());
  if (!compiled.ok()) {
    CHECK(!compiled.error().message.empty());
    return 0;
  }
  write({compiled.value(), table}, grammar::JsonState(compiled.value()), input.substr(line));
  return 0;
}
