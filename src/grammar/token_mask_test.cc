// Masks against the byte automaton, id by id, and texts written at random under them.
#include "grammar/token_mask.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/test_validator.h"
#include "grammar/test_vocabulary.h"
#include "support/test_paths.h"

namespace llorch::grammar {
namespace {

using test::allowed_ids;
using test::kEndId;

json::Array golden_schemas() {
  const auto path = llorch::test::source_path("tests/golden/grammar/schemas.json");
  return json::parse(base::read_text_file(path, std::size_t{16} << 20).take()).take().as_array();
}

bool accepts(const std::shared_ptr<const JsonGrammar>& grammar, std::string_view text) {
  JsonState state(grammar);
  return state.advance(text) && state.is_complete();
}

// What is let through is valid, by verdicts we did not make; and what is meant to be written is let
// through. The validator of these tests gives the same verdicts.
TEST(GoldenSchemas, TakeOnlyValidDocuments) {
  std::size_t written = 0;
  for (const json::Value& entry : golden_schemas()) {
    const json::Value& schema = entry.at("schema");
    SCOPED_TRACE(json::view(entry.at("name").as_string()));
    const auto grammar = compile_json_schema(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    const test::Validator validator(schema);
    for (const json::Value& document : entry.at("documents").as_array()) {
      const std::string_view text = json::view(document.at("text").as_string());
      const bool is_valid = document.at("is_valid").as_bool();
      EXPECT_EQ(validator.is_valid(json::parse(text).take()), is_valid) << text;
      const bool is_accepted = accepts(grammar.value(), text);
      EXPECT_TRUE(is_accepted || !document.at("is_written").as_bool()) << text;
      EXPECT_TRUE(is_valid || !is_accepted) << text;
      written += is_accepted ? 1U : 0U;
    }
  }
  EXPECT_GT(written, 150U);
}

void expect_valid(const json::Value& schema, const std::string& text) {
  const Result<json::Value> value = json::parse(text);
  if (!value.ok()) {
    // A free key may come twice: RFC 8259 lets it, our reader does not.
    EXPECT_NE(value.error().message.find("twice"), std::string::npos)
        << value.error().message << "\n"
        << text;
    return;
  }
  EXPECT_TRUE(test::Validator(schema).is_valid(value.value())) << text;
}

TEST(TokenMasker, EveryRandomTextEndsAndIsValid) {
  std::mt19937 random(20);
  const std::vector<std::string> bytes = test::small_vocabulary();
  const auto table = test::small_table();
  for (const json::Value& entry : golden_schemas()) {
    SCOPED_TRACE(json::view(entry.at("name").as_string()));
    const auto grammar = compile_json_schema(entry.at("schema")).take();
    for (int i = 0; i < 1000; ++i) {
      const auto text = test::write_text({grammar, table}, bytes, random, random() % 60);
      ASSERT_TRUE(text.has_value()) << "text " << i << " came to a stop";
      expect_valid(entry.at("schema"), *text);
    }
  }
}

TEST(TokenMasker, EveryRandomObjectEndsAndIsOne) {
  std::mt19937 random(21);
  const std::vector<std::string> bytes = test::small_vocabulary();
  const auto table = test::small_table();
  const auto grammar = compile_json_object().take();
  const json::Value schema = json::parse(R"({"type":"object"})").take();
  for (int i = 0; i < 2000; ++i) {
    const auto text = test::write_text({grammar, table}, bytes, random, random() % 200);
    ASSERT_TRUE(text.has_value()) << "text " << i << " came to a stop";
    expect_valid(schema, *text);
  }
}

// Schemas that must stop nesting in time, and ones that must not begin what they cannot end.
TEST(TokenMasker, TheDeepestTextsEndToo) {
  std::mt19937 random(22);
  const std::vector<std::string> bytes = test::small_vocabulary();
  const auto table = test::small_table();
  for (
      const std::string_view text :
      {R"({"type":"array","items":{"$ref":"#"}})",
       R"({"anyOf":[{"type":"array","items":{"$ref":"#"},"minItems":1,"maxItems":2},{"type":"null"}]})",
       R"({"anyOf":[{"type":"array","minItems":1,"items":{"type":"array","minItems":2,"items":{"$ref":"#"}}},
                     {"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"null"}},
                      "required":["b"]}},"required":["a"]}]})",
       R"({"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}})"}) {
    const json::Value schema = json::parse(text).take();
    const auto grammar = compile_json_schema(schema).take();
    for (int i = 0; i < 40; ++i) {
      TokenMasker masker(grammar, table);
      std::string prefix;
      // Opens whatever can be opened.
      for (int step = 0; step < 2000; ++step) {
        const std::vector<TokenId> ids = allowed_ids(masker, bytes.size());
        ASSERT_FALSE(ids.empty());
        TokenId id = -1;
        for (const char opener : {':', '"', 'a', '{', '['}) {
          if (std::binary_search(ids.begin(), ids.end(), static_cast<TokenId>(opener))) {
            id = static_cast<TokenId>(opener);
          }
        }
        if (id < 0) break;
        ASSERT_TRUE(masker.accept(id));
        prefix += bytes[static_cast<std::size_t>(id)];
        if (prefix.ends_with("aaaa")) break;
      }
      const auto rest = test::write_text(std::move(masker), bytes, random, random() % 20);
      ASSERT_TRUE(rest.has_value()) << prefix;
      expect_valid(schema, prefix + *rest);
    }
  }
}

// The promise of the mask, id by id.
void expect_exact(TokenMasker& masker, const JsonState& state, std::span<const std::string> bytes,
                  TokenId end_id) {
  std::vector<float> logits(bytes.size() + 10, 1.5F);
  masker.mask(logits);
  std::vector<std::uint32_t> bits(logits.size() / 32 + 2, ~0U);
  masker.allow(bits);
  for (std::size_t id = logits.size(); id < bits.size() * 32; ++id)
    ASSERT_FALSE(bits[id / 32] >> (id % 32) & 1U);
  std::size_t allowed = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    ASSERT_EQ((bits[id / 32] >> (id % 32) & 1U) != 0, logits[id] == 1.5F) << "id " << id;
    bool expected = false;
    if (static_cast<TokenId>(id) == end_id) {
      expected = state.is_complete();
    } else if (id < bytes.size() && !bytes[id].empty()) {
      JsonState copy = state;
      expected = copy.advance(bytes[id]);
    }
    ASSERT_EQ(logits[id] == 1.5F, expected) << "id " << id;
    ASSERT_TRUE(logits[id] == 1.5F || (std::isinf(logits[id]) && logits[id] < 0));
    allowed += expected ? 1U : 0U;
  }
  ASSERT_GT(allowed, 0U);
}

TEST(TokenMasker, AllowsExactlyTheIdsWhoseBytesMayFollow) {
  std::mt19937 random(23);
  const std::vector<std::string> bytes = test::small_vocabulary();
  const auto table = test::small_table();
  json::Array schemas;
  for (const json::Value& entry : golden_schemas()) schemas.push_back(entry.at("schema"));
  // Strings with and without a maximum, side by side and beside constants.
  for (
      const std::string_view text :
      {R"({"type":"string","maxLength":2})",
       R"({"anyOf":[{"type":"string","maxLength":3},{"enum":["the name","ab"]}]})",
       R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","minLength":5,"maxLength":6}]})",
       R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string","maxLength":1}}]})"}) {
    schemas.push_back(json::parse(text).take());
  }
  for (const json::Value& schema : schemas) {
    SCOPED_TRACE(json::serialize(schema));
    const auto grammar = compile_json_schema(schema).take();
    for (int i = 0; i < 25; ++i) {
      TokenMasker masker(grammar, table);
      JsonState state(grammar);
      for (int step = 0; step < 40; ++step) {
        expect_exact(masker, state, bytes, kEndId);
        if (HasFatalFailure()) return;
        const std::vector<TokenId> ids = allowed_ids(masker, bytes.size());
        const TokenId id = ids[random() % ids.size()];
        ASSERT_TRUE(masker.accept(id));
        if (id == kEndId) break;
        ASSERT_TRUE(state.advance(bytes[static_cast<std::size_t>(id)]));
      }
    }
  }
}

TEST(TokenMasker, OnlyEndIdsFollowAWholeObjectAndAnEnd) {
  TokenMasker masker(compile_json_object().take(), test::small_table());
  const std::size_t size = test::small_vocabulary().size();
  EXPECT_FALSE(masker.accept(kEndId));
  EXPECT_FALSE(masker.accept('x'));
  EXPECT_FALSE(masker.accept(-1));
  EXPECT_FALSE(masker.accept(static_cast<TokenId>(size)));
  EXPECT_FALSE(masker.accept(kEndId + 1)) << "an id without bytes";
  ASSERT_TRUE(masker.accept('{'));
  ASSERT_TRUE(masker.accept('}'));
  EXPECT_TRUE(masker.is_complete());
  EXPECT_EQ(allowed_ids(masker, size), std::vector<TokenId>{kEndId});
  EXPECT_TRUE(masker.accept(kEndId));
  EXPECT_EQ(allowed_ids(masker, size), std::vector<TokenId>{kEndId});
  EXPECT_FALSE(masker.accept('{'));
  EXPECT_TRUE(masker.accept(kEndId));
}

TEST(TokenTable, NeedsEveryByteAndAnEnd) {
  std::vector<std::string> bytes = test::small_vocabulary();
  const auto no_end = TokenTable::create(bytes, std::array{TokenId{100'000}, TokenId{-3}});
  ASSERT_FALSE(no_end.ok());
  EXPECT_EQ(no_end.error().code, ErrorCode::InvalidArgument);
  bytes[0xA9] = "";
  const auto no_byte = TokenTable::create(bytes, std::array{kEndId});
  ASSERT_FALSE(no_byte.ok());
  EXPECT_EQ(no_byte.error().code, ErrorCode::Unsupported);
  EXPECT_NE(no_byte.error().message.find("0xA9"), std::string::npos);
}

// More readings than are kept: some texts are lost, the rest stay valid and end.
TEST(TokenMasker, AmbiguityBeyondTheLimitStillEndsValid) {
  json::Array branches;
  for (int i = 0; i < 4; ++i) {
    branches.push_back(
        json::parse(R"({"type":"object","properties":{"a":{"$ref":"#"},"k)" + std::to_string(i) +
                    R"(":{"type":"integer"}},"required":["a"],"additionalProperties":false})")
            .take());
  }
  branches.push_back(json::parse(R"({"type":"null"})").take());
  const json::Value schema = json::Object{{"anyOf", branches}};
  const auto grammar = compile_json_schema(schema).take();
  std::mt19937 random(24);
  const std::vector<std::string> bytes = test::small_vocabulary();
  const auto table = test::small_table();
  TokenMasker masker(grammar, table);
  std::string prefix;
  for (int i = 0; i < 6; ++i) prefix += "{\"a\":";
  for (const char c : prefix) ASSERT_TRUE(masker.accept(static_cast<TokenId>(c)));
  const auto rest = test::write_text(std::move(masker), bytes, random, 30);
  ASSERT_TRUE(rest.has_value());
  expect_valid(schema, prefix + *rest);
}

// Real vocabularies: byte-level ones, as their files have them.
std::vector<std::string> byte_level_vocabulary(const std::filesystem::path& path) {
  std::vector<std::uint32_t> byte_of(512, 0);  // by the code point that stands for it
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    byte_of[is_itself ? byte : next++] = byte;
  }
  const json::Value file =
      json::parse(base::read_text_file(path, std::size_t{64} << 20).take()).take();
  std::vector<std::string> bytes;
  for (const auto& member : file.at("model").at("vocab").as_object()) {
    const auto id = static_cast<std::size_t>(member.value().as_int64());
    if (id >= bytes.size()) bytes.resize(id + 1);
    const std::string_view piece = json::view(member.key());
    for (std::size_t i = 0; i < piece.size(); ++i) {
      std::uint32_t point = static_cast<std::uint8_t>(piece[i]);
      if (point >= 0xC0) point = (point & 31U) << 6 | (static_cast<std::uint8_t>(piece[++i]) & 63U);
      bytes[id] += static_cast<char>(byte_of.at(point));
    }
  }
  return bytes;
}

TEST(TokenMasker, IsExactOverRealVocabularies) {
  std::size_t found = 0;
  for (const std::string_view name : {"gpt2", "smollm2", "llama3_1", "qwen2_5"}) {
    const auto path =
        llorch::test::data_path("tokenizers/" + std::string(name) + "/tokenizer.json");
    if (!path) continue;
    ++found;
    SCOPED_TRACE(name);
    std::vector<std::string> bytes = byte_level_vocabulary(*path);
    bytes.emplace_back("<end>");
    const auto end_id = static_cast<TokenId>(bytes.size() - 1);
    const auto table = TokenTable::create(bytes, std::array{end_id}).take();
    std::mt19937 random(25);
    const auto grammar = compile_json_schema(golden_schemas()[7].at("schema")).take();
    for (const auto& one : {grammar, compile_json_object().take()}) {
      TokenMasker masker(one, table);
      JsonState state(one);
      for (int step = 0; step < 12; ++step) {
        expect_exact(masker, state, bytes, end_id);
        if (HasFatalFailure()) return;
        const std::vector<TokenId> ids = allowed_ids(masker, bytes.size());
        const TokenId id = ids[random() % ids.size()];
        ASSERT_TRUE(masker.accept(id));
        if (id == end_id) break;
        ASSERT_TRUE(state.advance(bytes[static_cast<std::size_t>(id)]));
      }
    }
  }
  if (found == 0) GTEST_SKIP() << "no tokenizers in LLORCH_TEST_DATA";
}

}  // namespace
}  // namespace llorch::grammar
