#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/json_fields.h"

namespace llorch::json {
namespace {

using ::testing::HasSubstr;

TEST(Json, KeepsIntegersAndDoublesApart) {
  const Value value =
      parse(R"([-1, 9223372036854775807, 18446744073709551615, 1.0, 1e2, 0.1])").take();
  const Array& array = value.get_array();
  EXPECT_EQ(array[0].get_int64(), -1);
  EXPECT_EQ(array[1].get_int64(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(array[2].get_uint64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(array[3].get_double(), 1.0);
  EXPECT_EQ(array[4].get_double(), 100.0);
  EXPECT_EQ(array[5].get_double(), 0.1);
}

TEST(Json, ReadsDoublesExactly) {
  for (const double expected : {5e-324, 2.2250738585072011e-308, 1.7976931348623157e308, 0.3,
                                123456.789e-7, 9007199254740993.5}) {
    const std::string text = serialize(Value(expected));
    EXPECT_EQ(parse(text).value().get_double(), expected) << text;
  }
  EXPECT_EQ(parse("1e-400").value().get_double(), 0.0);
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "// c\n1",
                           "nul",
                           "NaN",
                           "Infinity",
                           "1e400",
                           "-1e999",
                           "01",
                           "1 2",
                           "{'a':1}",
                           "\"\\ud800\"",
                           "\"tab\there\"",
                           "\xef\xbb\xbf{}",
                           "{\"a\" 1}",
                           "[1}",
                           "+1",
                           ".5",
                           "\"a"}) {
    const Result<Value> parsed = parse(text);
    EXPECT_FALSE(parsed.ok()) << text;
  }
}

TEST(Json, RefusesInvalidUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                           "\"\xe2\x82\"", "{\"\xfe\": 1}"}) {
    EXPECT_FALSE(parse(text).ok());
  }
  EXPECT_EQ(view(parse("\"\xe2\x82\xac\\u20ac\"").value().get_string()),
            "\xe2\x82\xac\xe2\x82\xac");
}

TEST(Json, RefusesDuplicateKeysAndNamesThem) {
  const Result<Value> plain = parse(R"({"a": {"x": 1}, "b": {"x": 1, "y": 2, "x": 3}})");
  ASSERT_FALSE(plain.ok());
  EXPECT_THAT(plain.error().message, HasSubstr("\"x\" occurs twice"));
  // The same key once plainly, once escaped.
  EXPECT_FALSE(parse(R"({"key": 1, "k\u0065y": 2})").ok());
  EXPECT_FALSE(parse(R"({"": 1, "": 2})").ok());
  // The same key in different objects is no duplicate.
  EXPECT_TRUE(parse(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]})").ok());
}

TEST(Json, SaysWhereTheMistakeIs) {
  const Result<Value> parsed = parse("{\n  \"a\": 1,\n  \"b\": x\n}");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(parsed.error().message, HasSubstr("line 3, column 8"));
  EXPECT_THAT(parse("1 x").error().message, HasSubstr("behind the end"));
}

TEST(Json, WhatIsWrongInAStringIsNamed) {
  const auto says = [](std::string_view text) {
    const Result<Value> parsed = parse(text);
    EXPECT_FALSE(parsed.ok()) << text;
    return parsed.ok() ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(says("{\"a\":\"x\xff\"}"), HasSubstr("column 8 (byte 7): the text is not UTF-8"));
  EXPECT_THAT(says("{\"a\":\"\xed\xa0\x80\"}"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(says("[\"\xc3(\"]"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(says("[\"\xe2\x82"), HasSubstr("JSON line 1"));
  EXPECT_THAT(says("{\"\xc0\x80\":1}"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(says("{\"a\":\"x\ny\"}"), HasSubstr("(byte 7): a control character"));
  EXPECT_THAT(says("[\"\\ud800\"]"), HasSubstr("(byte 2): half of a surrogate pair"));
  EXPECT_THAT(says("[\"\\uDC00x\"]"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(says("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
  EXPECT_THAT(says("[\"\\q\"]"), HasSubstr("syntax error"));
  EXPECT_THAT(says("\"\\"), HasSubstr("incomplete"));
  EXPECT_THAT(says("{,}"), HasSubstr("syntax error"));
  EXPECT_THAT(says("[\u00e9]"), HasSubstr("syntax error"));
}

TEST(Json, BoundsDepthAndSize) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse(nested(64)).ok());
  const Result<Value> deep = parse(nested(65));
  ASSERT_FALSE(deep.ok());
  EXPECT_THAT(deep.error().message, HasSubstr("64 levels"));
  EXPECT_FALSE(parse(std::string(1000000, '[')).ok());
  EXPECT_EQ(parse("[1,2]", {.max_bytes = 4}).error().code, ErrorCode::TooLarge);
}

TEST(Json, SerializesWhatReadsBackTheSame) {
  const std::string text =
      R"({"a":[1,-2,18446744073709551615,1.0,0.1,1e+300,true,false,null],"b":{"c":"q\"\\\n\u0001é"},"d":[],"e":{}})";
  EXPECT_EQ(serialize(parse(text).value()), text);
  EXPECT_EQ(serialize(Array{Array{}, Array{1}, 2}), "[[],[1],2]");
}

TEST(Json, SerializesNonFiniteAsNull) {
  EXPECT_EQ(serialize(Array{std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}),
            "[null,null]");
}

Object object_of(const char* text) {
  return parse(text).take().get_object();
}

TEST(FieldReader, ReturnsWhatIsThere) {
  const Object object = object_of(
      R"({"s":"x","i":2.0,"u":18446744073709551615,"n":1,"b":true,"list":["a","b"],"o":{},"gone":null,"user":1})");
  FieldReader reader(object);
  EXPECT_EQ(reader.required_string("s", {1, 1}), "x");
  EXPECT_EQ(reader.required_integer("i", 0, 2), 2);
  EXPECT_EQ(reader.optional_unsigned("u"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.optional_number("n", {0, 1}), 1.0);
  EXPECT_EQ(reader.optional_bool("b"), true);
  EXPECT_EQ(reader.optional_strings("list", 2), (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(reader.required_object("o"), nullptr);
  EXPECT_EQ(reader.optional_number("gone"), std::nullopt);
  EXPECT_EQ(reader.optional_string("absent"), std::nullopt);
  reader.ignore("user");
  EXPECT_TRUE(reader.finish().empty());
}

TEST(FieldReader, CollectsEveryFailure) {
  const Object object = object_of(
      R"({"temperature":3,"top_p":"1","penalty":0,"max_tokens":1.5,"seed":-1,"stop":["ok",7,""],"mystery":1,"id":null,"o":[]})");
  FieldReader reader(object, "options.");
  reader.required_string("id");
  reader.optional_number("temperature", {0, 2});
  reader.optional_number("top_p", {0, 1});
  reader.optional_number("penalty", {.min = 0, .max = 2, .above_min = true});
  reader.optional_integer("max_tokens", 1, 10);
  reader.optional_unsigned("seed");
  reader.optional_strings("stop", 4, {1, 100});
  reader.optional_object("o");
  reader.fail("prompt", "fits the context", "does not fit");
  const std::vector<FieldError> errors = reader.finish();
  std::vector<std::string> seen;
  for (const FieldError& error : errors) seen.push_back(error.field + " | " + error.constraint);
  EXPECT_THAT(seen,
              ::testing::ElementsAre("options.id | required", "options.temperature | 0..2",
                                     "options.top_p | number", "options.penalty | > 0 and <= 2",
                                     "options.max_tokens | 1..10", "options.seed | 0..2^64-1",
                                     "options.stop[1] | string", "options.stop[2] | 1..100 bytes",
                                     "options.o | object", "options.prompt | fits the context",
                                     "options.mystery | known field"));
  EXPECT_EQ(errors[1].value, Value(3));
  EXPECT_EQ(errors[2].value, std::nullopt) << "text is never echoed";
  EXPECT_EQ(errors[1].message, "must be in 0..2, is 3");
  EXPECT_EQ(errors[2].message, "must be a number, not a string");
}

TEST(FieldReader, ShortensNamesThatNobodyKnows) {
  const Object object{{std::string(99, 'x') + "é" + std::string(100'000, 'y'), 1}};
  FieldReader reader(object);
  const std::vector<FieldError> errors = reader.finish();
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].field, std::string(99, 'x') + "…");
}

TEST(FieldReader, BoundsTheNumberOfStrings) {
  const Object object = object_of(R"({"stop":["a","b","c"]})");
  FieldReader reader(object);
  EXPECT_EQ(reader.optional_strings("stop", 2), std::nullopt);
  const std::vector<FieldError> errors = reader.finish();
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].constraint, "at most 2 entries");
}

TEST(JsonParse, InOneBlockIsTheSameValueAndPartsOutliveTheWhole) {
  const std::string text =
      R"({"a":[1,2.5,"a text that is longer than a short one",null],"b":{"c":true}})";
  Value part;
  {
    Limits limits;
    limits.in_one_block = true;
    Result<Value> value = parse(text, limits);
    ASSERT_TRUE(value.ok()) << value.error().message;
    EXPECT_EQ(serialize(*value), text);
    EXPECT_EQ(*value, *parse(text));
    part = value->get_object().at("a");
    EXPECT_FALSE(parse(R"({"a":1,"a":2})", limits).ok());
  }
  EXPECT_EQ(serialize(part), R"([1,2.5,"a text that is longer than a short one",null])");
}

}  // namespace
}  // namespace llorch::json
