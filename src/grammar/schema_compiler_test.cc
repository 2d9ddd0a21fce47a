// What the compiler takes, and what it says about the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "grammar/json_grammar.h"

namespace llorch::grammar {
namespace {

using ::testing::HasSubstr;

Result<std::shared_ptr<const JsonGrammar>> compile(std::string_view schema) {
  return compile_json_schema(json::parse(schema, {.max_depth = 1000}).take());
}

struct Refusal {
  std::string_view schema;
  ErrorCode code;
  std::string_view pointer;
};

TEST(SchemaCompiler, NamesWhatItCannotEnforceAndWhere) {
  using enum ErrorCode;
  const Refusal refusals[] = {
      {R"({"type":"string","pattern":"\\ba"})", Unsupported, "#/pattern"},
      {R"({"type":"string","pattern":"("})", InvalidArgument, "#/pattern"},
      {R"({"type":"string","pattern":7})", InvalidArgument, "#/pattern"},
      {R"({"properties":{"a/b":{"not":{}}}})", Unsupported, "#/properties/a~1b/not"},
      {R"({"items":{"multipleOf":2}})", Unsupported, "#/items/multipleOf"},
      {R"({"type":"array","uniqueItems":true})", Unsupported, "#/uniqueItems"},
      {R"({"minProperties":1})", Unsupported, "#/minProperties"},
      {R"({"patternProperties":{}})", Unsupported, "#/patternProperties"},
      {R"({"if":{},"then":{}})", Unsupported, "#/if"},
      {R"({"unheard-of":1})", Unsupported, "#/unheard-of"},
      {R"({"allOf":[{},{}]})", Unsupported, "#/allOf"},
      {R"({"anyOf":[{}],"type":"object"})", Unsupported, "#/type"},
      {R"({"anyOf":[{}],"oneOf":[{}]})", Unsupported, "#/oneOf"},
      {R"({"enum":["a"],"minLength":1})", Unsupported, "#/minLength"},
      {R"({"$ref":"#/$defs/a","minLength":1,"$defs":{"a":{}}})", Unsupported, "#/minLength"},
      {R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"$ref":"#/$defs/b","maxLength":1},"b":{}}})",
       Unsupported, "#/$defs/a/maxLength"},
      {R"({"$ref":"other.json"})", Unsupported, "#/$ref"},
      {R"({"$ref":"#/$defs/a%20b"})", Unsupported, "#/$ref"},
      {R"({"items":[{}]})", Unsupported, "#/items"},
      {R"({"items":{"$id":"x"}})", Unsupported, "#/items/$id"},
      {R"({"nullable":true})", Unsupported, "#/nullable"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", Unsupported, "#/oneOf"},
      {R"({"oneOf":[{"const":1},{"const":1.0}]})", Unsupported, "#/oneOf"},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}}},
                    {"type":"object","properties":{"k":{"const":"b"}}}]})",
       Unsupported, "#/oneOf"},
      {R"({"$ref":"#/$defs/none"})", InvalidArgument, "#/$ref"},
      {R"({"$ref":7})", InvalidArgument, "#/$ref"},
      {R"({"type":"text"})", InvalidArgument, "#/type"},
      {R"({"type":[]})", InvalidArgument, "#/type"},
      {R"({"type":3})", InvalidArgument, "#/type"},
      {R"({"enum":[]})", InvalidArgument, "#/enum"},
      {R"({"enum":["a"],"type":"integer"})", InvalidArgument, "#/type"},
      {R"({"anyOf":[]})", InvalidArgument, "#/anyOf"},
      {R"({"anyOf":{}})", InvalidArgument, "#/anyOf"},
      {R"({"items":5})", InvalidArgument, "#/items"},
      {R"({"properties":[]})", InvalidArgument, "#/properties"},
      {R"({"required":"a"})", InvalidArgument, "#/required"},
      {R"({"required":[1]})", InvalidArgument, "#/required"},
      {R"({"required":["a"],"additionalProperties":false})", InvalidArgument, "#/required"},
      {R"({"minItems":-1})", InvalidArgument, "#/minItems"},
      {R"({"minItems":1.5})", InvalidArgument, "#/minItems"},
      {R"({"minLength":4,"maxLength":3})", InvalidArgument, "#/minLength"},
      {R"({"minimum":"1"})", InvalidArgument, "#/minimum"},
      {R"({"exclusiveMinimum":true})", InvalidArgument, "#/exclusiveMinimum"},
      {R"([])", InvalidArgument, "#"},
      {R"("x")", InvalidArgument, "#"},
      {R"({"maxLength":10000000000})", TooLarge, "#/maxLength"},
  };
  for (const Refusal& refusal : refusals) {
    const auto grammar = compile(refusal.schema);
    ASSERT_FALSE(grammar.ok()) << refusal.schema;
    EXPECT_EQ(grammar.error().code, refusal.code) << refusal.schema << grammar.error().message;
    EXPECT_THAT(grammar.error().message, HasSubstr("\"" + std::string(refusal.pointer) + "\""));
  }
}

TEST(SchemaCompiler, ASchemaWithoutAFiniteTextIsAnError) {
  for (const std::string_view schema :
       {R"({"$ref":"#"})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
        R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", R"({"allOf":[{"$ref":"#"}]})",
        R"({"anyOf":[{"anyOf":[{"$ref":"#"}]}]})", "false",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"array","items":{"$ref":"#"},"minItems":1})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"array","prefixItems":[{"type":"null"}],"items":false,"minItems":2})"}) {
    const auto grammar = compile(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::InvalidArgument) << grammar.error().message;
  }
}

TEST(SchemaCompiler, ImpossiblePartsThatNobodyNeedsAreLeftOut) {
  for (const std::string_view schema :
       {R"({"type":"object","properties":{"a":false}})", R"({"anyOf":[false,{"type":"null"}]})",
        R"({"type":"array","items":false})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}}})"}) {
    const auto grammar = compile(schema);
    ASSERT_TRUE(grammar.ok()) << schema << grammar.error().message;
  }
  JsonState state(compile(R"({"type":"object","properties":{"a":false}})").take());
  EXPECT_TRUE(state.advance("{"));
  EXPECT_FALSE(state.advance("\""));
}

TEST(SchemaCompiler, AnnotationsAskForNothing) {
  const auto grammar = compile(
      R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://example.com/x","title":"t",
          "description":"d","default":{},"examples":[1],"$comment":"c","deprecated":false,"readOnly":true,
          "type":"string","format":"date-time","$defs":{"unused":{"pattern":"x"}}})");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
}

TEST(SchemaCompiler, OneOfWithSchemasThatExcludeEachOther) {
  for (const std::string_view schema :
       {R"({"oneOf":[{"type":"string"},{"type":"null"}]})",
        R"({"oneOf":[{"enum":["a","b"]},{"const":"c"}]})",
        R"({"oneOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"$defs":{"a":{"type":"array"}}})",
        R"({"oneOf":[{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]},
                     {"type":"object","properties":{"k":{"type":"array"}},"required":["k"]}]})"}) {
    const auto grammar = compile(schema);
    EXPECT_TRUE(grammar.ok()) << schema << grammar.error().message;
  }
}

TEST(SchemaCompiler, LongChainsOfReferencesAreNotNesting) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 90; ++i) {
    schema +=
        "\"d" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"},";
  }
  schema += R"("d90":{"type":"null"}}})";
  const auto grammar = compile(schema);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(JsonState(grammar.value()).advance("null"));
}

std::string repeated(std::string_view unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

void expect_too_large(const std::string& schema) {
  const auto grammar = compile(schema);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().code, ErrorCode::TooLarge) << grammar.error().message;
}

TEST(SchemaCompiler, BoundsEverything) {
  std::string values = "\"v\"";
  for (int i = 0; i < 10'000; ++i) values += ",\"value" + std::to_string(i) + "\"";
  expect_too_large("{\"enum\":[" + values + "]}");
  expect_too_large("{\"const\":\"" + std::string(500'000, 'x') + "\"}");
  expect_too_large("{\"anyOf\":[true" + repeated(",{\"type\":\"null\"}", 100) + "]}");
  std::string properties = "\"p\":{}";
  for (int i = 0; i < 100; ++i) properties += ",\"p" + std::to_string(i) + "\":{}";
  expect_too_large("{\"properties\":{" + properties + "}}");
  expect_too_large("{\"properties\":{\"" + std::string(1001, 'n') + "\":{}}}");
  // Alternatives of one alternative, deeper than a step follows.
  expect_too_large(repeated("{\"anyOf\":[", 400) + "{\"anyOf\":[" + repeated("{\"allOf\":[", 90) +
                   "true" + repeated("]}", 90) + "]}" + repeated("]}", 400) + "");
}

TEST(SchemaCompiler, DeepSchemasAreAsDeepAsTheirTexts) {
  const std::string deep = repeated("{\"type\":\"array\",\"minItems\":1,\"items\":", 63) +
                           "{\"type\":\"array\"}" + repeated("}", 63);
  ASSERT_TRUE(compile(deep).ok());
  const auto deeper = compile("{\"type\":\"array\",\"minItems\":1,\"items\":" + deep + "}");
  ASSERT_FALSE(deeper.ok());
  EXPECT_EQ(deeper.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(deeper.error().message, HasSubstr("64"));
}

}  // namespace
}  // namespace llorch::grammar
