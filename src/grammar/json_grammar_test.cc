// Bytes of JSON texts, against our JSON reader: what it takes the grammar takes, but for whitespace
// and the length of numbers.
#include "grammar/json_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace llorch::grammar {
namespace {

std::shared_ptr<const JsonGrammar> object_grammar() {
  return compile_json_object().take();
}

std::shared_ptr<const JsonGrammar> schema_grammar(std::string_view schema) {
  return compile_json_schema(json::parse(schema).take()).take();
}

bool accepts(const std::shared_ptr<const JsonGrammar>& grammar, std::string_view text) {
  JsonState state(grammar);
  return state.advance(text) && state.is_complete();
}

// Whitespace is one space, or a newline with an indent; at the start, after {[,: or before ]}.
bool has_allowed_whitespace(std::string_view text) {
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && std::string_view(" \n\r\t").find(text[i]) != std::string_view::npos) {
      const std::size_t end = std::min(text.find_first_not_of(" \n\r\t", i), text.size());
      const std::string_view run = text.substr(i, end - i);
      const bool is_indent = run[0] == '\n' && run.size() <= 1 + kMaxIndent &&
                             run.substr(1).find_first_not_of(" \t") == std::string_view::npos;
      if (run != " " && !is_indent) return false;
      const bool follows =
          i == 0 || std::string_view("{[,:").find(text[i - 1]) != std::string_view::npos;
      const bool precedes = end < text.size() && (text[end] == ']' || text[end] == '}');
      if (!follows && !precedes) return false;
      i = end - 1;
    }
  }
  return true;
}

// Of texts whose strings have no such letters.
bool has_short_exponents(std::string_view text) {
  const std::size_t sign = text.find_first_of("+-", text.find_first_of("eE"));
  const std::size_t e = text.find_first_of("eE");
  if (e == std::string_view::npos) return true;
  const std::size_t digits = sign == e + 1 ? e + 2 : e + 1;
  return text.find_first_not_of("0123456789", digits) - digits <= 2;
}

bool is_object_text(std::string_view text) {
  const Result<json::Value> value = json::parse(text);
  return value.ok() && value->is_object() && has_allowed_whitespace(text);
}

// Every text of at most `length` symbols between `before` and `after`.
void compare_all(std::string_view before, const std::vector<std::string>& symbols,
                 std::size_t length, std::string_view after,
                 bool (*is_expected)(std::string_view) = is_object_text) {
  const auto grammar = object_grammar();
  std::vector<std::size_t> digits;
  std::size_t accepted = 0;
  while (digits.size() <= length) {
    std::string text(before);
    for (const std::size_t digit : digits) text += symbols[digit];
    text += after;
    const bool expected = is_expected(text);
    accepted += expected ? 1U : 0U;
    ASSERT_EQ(accepts(grammar, text), expected) << text;
    std::size_t i = 0;
    while (i < digits.size() && ++digits[i] == symbols.size()) digits[i++] = 0;
    if (i == digits.size()) digits.push_back(0);
  }
  EXPECT_GT(accepted, 0U);
}

std::vector<std::string> letters(std::string_view text) {
  std::vector<std::string> result;
  for (const char c : text) result.emplace_back(1, c);
  return result;
}

TEST(JsonGrammar, TakesTheObjectsOurReaderTakes) {
  compare_all("", {"{", "}", "\"\"", ":", ",", "[", "]", "0", " ", "\n", "null", "x"}, 5, "");
  compare_all("{\"a\":", {"{", "}", "\"\"", ":", ",", "[", "]", "1", " ", "true"}, 5, "}");
  compare_all("{\"a\":[[1", letters("],[{} \n\t\r2"), 5, "]}");
}

TEST(JsonGrammar, TakesTheNumbersOurReaderTakes) {
  compare_all("{\"a\":", letters("0159-+.eE"), 5, "}", [](std::string_view text) {
    return is_object_text(text) && has_short_exponents(text);
  });
}

TEST(JsonGrammar, TakesTheEscapesOurReaderTakes) {
  compare_all("{\"a\":\"", letters("\\\"ubnx/0\x1f"), 4, "\"}");
  compare_all("{\"\\u", letters("0789aAbBcdDeEfFg"), 4, "\":0}");
  compare_all("{\"\\ud83d", {"\\", "u", "d", "D", "c", "e", "f", "0", "b"}, 6, "\":0}");
}

TEST(JsonGrammar, TakesWellFormedUtf8Only) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  compare_all("{\"a\":\"", bytes, 2, "\"}");
  // The edges of every kind of first byte, and of what may follow it.
  compare_all("{\"a\":\"",
              letters("a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5"),
              4, "\"}");
}

TEST(JsonGrammar, BoundsWhitespaceAndNumbers) {
  const auto grammar = object_grammar();
  EXPECT_TRUE(accepts(grammar, "{\n" + std::string(kMaxIndent, ' ') + "\"a\": 1}"));
  EXPECT_FALSE(accepts(grammar, "{\n" + std::string(kMaxIndent + 1, ' ') + "\"a\": 1}"));
  EXPECT_FALSE(accepts(grammar, "{}\n"));
  EXPECT_FALSE(accepts(grammar, "{}{}"));
  EXPECT_TRUE(accepts(grammar, " {\"a\":" + std::string(18, '1') + "}"));
  EXPECT_FALSE(accepts(grammar, "{\"a\":" + std::string(19, '1') + "}"));
  EXPECT_FALSE(accepts(grammar, "{\"a\":1e999}"));
}

TEST(JsonGrammar, NestsToTheLimitAndNotBeyond) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(json::parse(nested(kMaxNesting)).ok());
  EXPECT_TRUE(accepts(object_grammar(), nested(kMaxNesting)));
  EXPECT_FALSE(accepts(object_grammar(), nested(kMaxNesting + 1)));
}

TEST(JsonState, ARefusedByteChangesNothing) {
  JsonState state(object_grammar());
  ASSERT_TRUE(state.advance("{\"a\":[1,"));
  JsonState copy = state;
  EXPECT_FALSE(state.advance("2]x"));
  EXPECT_FALSE(state.advance(std::uint8_t{'}'}));
  for (const std::string_view rest : {"2]}", "null]}"}) {
    JsonState again = state;
    EXPECT_TRUE(again.advance(rest) && again.is_complete());
  }
  EXPECT_TRUE(copy.advance("2]}"));
  EXPECT_TRUE(copy.is_complete());
  EXPECT_FALSE(state.is_complete());
}

// A text is taken whole exactly when it is taken byte by byte, whatever the state copies.
TEST(JsonState, BytesOneByOneAreTheTextAtOnce) {
  const std::string text = R"({"é\ud83d\ude00": [1.5e-3, {"b": null}, "x"]})";
  JsonState whole(object_grammar());
  ASSERT_TRUE(whole.advance(text));
  JsonState state(object_grammar());
  for (const char c : text) {
    ASSERT_FALSE(state.is_complete());
    JsonState copy = state;
    ASSERT_TRUE(copy.advance(static_cast<std::uint8_t>(c)));
    state = copy;
  }
  EXPECT_TRUE(state.is_complete());
}

// Numbers in bounds, against strtod.
void compare_numbers(std::string_view type, double low, double high, std::size_t length) {
  const std::string schema = "{\"type\":\"" + std::string(type) +
                             "\",\"minimum\":" + json::serialize(json::Value(low)) +
                             ",\"exclusiveMaximum\":" + json::serialize(json::Value(high)) + "}";
  const auto grammar = schema_grammar(schema);
  const std::string_view symbols = "0123456789-.";
  std::string text;
  std::size_t accepted = 0;
  const auto visit = [&](auto&& self) -> void {
    if (!text.empty()) {
      const Result<json::Value> value = json::parse(text);
      const double number = std::strtod(text.c_str(), nullptr);
      const bool expected = value.ok() && number >= low && number < high &&
                            (text[0] != '-' || low < 0) &&  // zero has one sign then
                            (type == "number" || text.find('.') == std::string::npos);
      accepted += expected ? 1U : 0U;
      ASSERT_EQ(accepts(grammar, text), expected) << schema << " " << text;
    }
    if (text.size() == length) return;
    for (const char c : symbols) {
      text += c;
      self(self);
      text.pop_back();
    }
  };
  visit(visit);
  EXPECT_GT(accepted, 0U) << schema;
}

TEST(NumberRange, TakesWhatLiesWithin) {
  compare_numbers("integer", 0, 100, 4);
  compare_numbers("integer", -17, 1034, 4);
  compare_numbers("integer", -1200, -9, 5);
  compare_numbers("integer", 0.5, 7.5, 3);
  compare_numbers("number", 0, 1, 5);
  compare_numbers("number", -1.25, 10.5, 5);
  compare_numbers("number", 0.05, 0.07, 5);
  compare_numbers("number", 99.5, 1000, 5);
  compare_numbers("number", -3, 0, 4);
}

TEST(NumberRange, AnEmptyRangeIsAnError) {
  for (const std::string_view schema :
       {R"({"type":"integer","minimum":5,"maximum":4})",
        R"({"type":"integer","exclusiveMinimum":4,"exclusiveMaximum":5})",
        R"({"type":"integer","minimum":1.1,"maximum":1.9})",
        R"({"type":"number","minimum":1e20})"}) {
    const auto grammar = compile_json_schema(json::parse(schema).take());
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::InvalidArgument);
  }
}

TEST(NumberRange, BoundsBeyondWhatCanBeWrittenAreNarrowed) {
  const auto grammar =
      schema_grammar(R"({"type":"number","minimum":-1e300,"maximum":18446744073709551615})");
  EXPECT_TRUE(accepts(grammar, "999999999999999"));
  EXPECT_TRUE(accepts(grammar, "-0.00000000000001"));
  EXPECT_FALSE(accepts(grammar, "1e5"));
}

TEST(JsonGrammar, LengthsAreInCharacters) {
  const auto grammar = schema_grammar(R"({"type":"string","minLength":2,"maxLength":3})");
  for (const std::string_view text : {"\"ab\"", "\"日本語\"", "\"\\ud83d\\ude00😀\\n\""}) {
    EXPECT_TRUE(accepts(grammar, text)) << text;
  }
  for (const std::string_view text : {"\"\"", "\"é\"", "\"\\ud83d\\ude00\"", "\"abcd\""}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(JsonGrammar, OtherKeysAreNoneOfTheNamedHoweverWritten) {
  const auto grammar = schema_grammar(
      R"({"type":"object","properties":{"ab":{"type":"null"},"é":{"type":"null"},"q\"":{"type":"null"}},
          "additionalProperties":{"type":"integer"}})");
  for (const std::string_view key :
       {"a", "abc", "b", "", "\xC3\xA8", "q", "x\\u0061", "aé\\n", "日"}) {
    EXPECT_TRUE(accepts(grammar, "{\"" + std::string(key) + "\":1}")) << key;
  }
  for (const std::string_view key :
       {"ab", "\\u0061b", "a\\u0062", "é", "\\u00e9", "q\\\"", "q\\u0022"}) {
    EXPECT_FALSE(accepts(grammar, "{\"" + std::string(key) + "\":1}")) << key;
  }
  EXPECT_TRUE(accepts(grammar, "{\"ab\":null,\"é\":null,\"q\\\"\":null,\"z\":1}"));
  EXPECT_FALSE(accepts(grammar, "{\"é\":null,\"ab\":null}")) << "the order is the schema's";
}

bool follows(const FramedGrammar& frame, std::string_view text) {
  const auto grammar = compile_framed(frame);
  EXPECT_TRUE(grammar.ok());
  JsonState state(*grammar);
  return state.advance(text) && state.is_complete();
}

TEST(FramedGrammar, IsAValueWithTextAroundIt) {
  const json::Value integer = json::parse(R"({"type":"integer"})").take();
  const json::Value text = json::parse(R"({"type":"string"})").take();
  FramedGrammar frame;
  frame.values = {{"<a=", integer, ">"}, {"<b=", text, ">"}};
  EXPECT_TRUE(follows(frame, "<a=12>"));
  EXPECT_TRUE(follows(frame, "<b=\"x\">"));
  EXPECT_FALSE(follows(frame, "<a=\"x\">"));
  EXPECT_FALSE(follows(frame, "<a=12"));
  EXPECT_FALSE(follows(frame, " <a=12>"));
  EXPECT_FALSE(follows(frame, "<a=12><a=1>")) << "one only";
  frame.between = ", ";
  frame.closing = "]";
  EXPECT_FALSE(follows(frame, "<a=12>, <a=1>]")) << "still one only";
  frame.max_values = 3;
  EXPECT_TRUE(follows(frame, "<a=12>]"));
  EXPECT_TRUE(follows(frame, "<a=12>, <b=\"\">, <a=0>]"));
  EXPECT_FALSE(follows(frame, "<a=1>, <a=2>, <a=3>, <a=4>]")) << "more than max_values";
  EXPECT_FALSE(follows(frame, "<a=12>, ]"));
  EXPECT_FALSE(follows(frame, "<a=12>"));
}

TEST(FramedGrammar, NamesTheSchemaThatFails) {
  FramedGrammar frame;
  EXPECT_FALSE(compile_framed(frame).ok());
  frame.values = {{"", json::Value(true), ""}, {"", json::parse(R"({"not":{}})").take(), ""}};
  const auto grammar = compile_framed(frame);
  ASSERT_FALSE(grammar.ok());
  EXPECT_NE(grammar.error().message.find("schema 1"), std::string::npos) << grammar.error().message;
  frame.values = {{std::string(kMaxFrameBytes + 1, 'x'), json::Value(true), ""}};
  EXPECT_FALSE(compile_framed(frame).ok());
}

}  // namespace
}  // namespace llorch::grammar
