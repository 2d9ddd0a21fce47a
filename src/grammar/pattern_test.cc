#include "grammar/pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "base/json.h"
#include "grammar/json_grammar.h"

namespace llorch::grammar {
namespace {

// What zod 4 writes for z.email(), z.uuid() and z.iso.datetime().
constexpr std::string_view kEmail =
    R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)";
constexpr std::string_view kUuid =
    R"(^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$)";
constexpr std::string_view kDateTime =
    R"(^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))T(?:(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$)";

Result<PatternAutomaton> compile(std::string_view pattern, PatternLength length = {}) {
  std::size_t work = 0;
  return compile_pattern(pattern, length, work);
}

bool matches(const PatternAutomaton& automaton, std::string_view ascii) {
  std::size_t state = 0;
  for (const char c : ascii) {
    bool moved = false;
    for (const PatternAutomaton::Step& step : automaton.states[state].steps) {
      const auto code = static_cast<std::uint32_t>(static_cast<unsigned char>(c));
      if (code < step.chars.low || code > step.chars.high) continue;
      state = step.target;
      moved = true;
      break;
    }
    if (!moved) return false;
  }
  return automaton.states[state].is_final;
}

TEST(Pattern, ZodsExpressions) {
  const auto check = [](std::string_view pattern, const std::vector<std::string>& good,
                        const std::vector<std::string>& bad) {
    const auto automaton = compile(pattern);
    ASSERT_TRUE(automaton.ok()) << automaton.error().message;
    for (const std::string& text : good) EXPECT_TRUE(matches(*automaton, text)) << text;
    for (const std::string& text : bad) EXPECT_FALSE(matches(*automaton, text)) << text;
  };
  check(kEmail, {"a@b.co", "first.last+tag@sub.example.org", "o'neil@x-y.io"},
        {"", "a", "a@b", ".a@b.co", "a..b@c.de", "a.@b.co", "a@-b.co", "a@b..co", "a b@c.de"});
  check(kUuid, {"550e8400-e29b-41d4-a716-446655440000", "00000000-0000-0000-0000-000000000000"},
        {"550e8400-e29b-41d4-a716-44665544000", "550e8400-e29b-01d4-a716-446655440000"});
  check(kDateTime, {"2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5Z", "2000-02-29T00:00Z"},
        {"2023-02-29T12:00:00Z", "2024-04-31T12:00:00Z", "2024-01-01 12:00:00Z"});
}

// Short texts over a few letters, against the standard library's expressions.
TEST(Pattern, AgreesWithAnotherImplementation) {
  const std::vector<std::string> patterns = {"a",
                                             "^a",
                                             "a$",
                                             "^a$",
                                             "^$",
                                             "",
                                             "ab|ba",
                                             "^ab|ba$",
                                             "^(ab|b)*$",
                                             "^a{2,3}b?$",
                                             "^a{2}",
                                             "[ab]c",
                                             "^[^a]+$",
                                             "a.c",
                                             "^(a|b(c|a))+$",
                                             "^(?!a)[abc]+$",
                                             "^(?=ab)",
                                             "^(?!.*cc)[abc]*$",
                                             "^(?!a|b$).",
                                             "(?:a|)b",
                                             "^\\w\\d?$",
                                             "a*?b+?",
                                             "^(?=.*a)(?=.*b)(?!.*c).*$",
                                             "^(a*)*b$",
                                             "[a-c]{3,}",
                                             "^(?!ab$)ab*$"};
  for (const std::string& pattern : patterns) {
    const auto automaton = compile(pattern);
    ASSERT_TRUE(automaton.ok()) << pattern << ": " << automaton.error().message;
    const std::regex other(pattern);
    std::vector<std::string> texts = {""};
    for (std::size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
      for (const char c : {'a', 'b', 'c', '1'}) texts.push_back(texts[i] + c);
    }
    for (const std::string& text : texts) {
      ASSERT_EQ(matches(*automaton, text), std::regex_search(text, other))
          << pattern << " on \"" << text << '"';
    }
  }
}

TEST(Pattern, LengthsCount) {
  const auto automaton = compile("^a*b?$", {.min = 2, .max = 3});
  ASSERT_TRUE(automaton.ok());
  for (const auto& [text, is_good] :
       {std::pair{"a", false}, {"aa", true}, {"ab", true}, {"aab", true}, {"aaaa", false}})
    EXPECT_EQ(matches(*automaton, text), is_good) << text;
  EXPECT_FALSE(compile("^a{5}$", {.max = 4}).ok()) << "no text is left";
}

TEST(Pattern, SaysWhatItDoesNotDo) {
  const auto code = [](std::string_view pattern) {
    const auto automaton = compile(pattern);
    EXPECT_FALSE(automaton.ok()) << pattern;
    return automaton.ok() ? ErrorCode::Internal : automaton.error().code;
  };
  for (const std::string_view pattern :
       {"\\ba", "(a)\\1", "a(?=b)", "(?<=a)b", "a^b", "a$b", "(^a)", "\\p{L}", "\\k<n>"})
    EXPECT_EQ(code(pattern), ErrorCode::Unsupported) << pattern;
  for (const std::string_view pattern :
       {"(", ")", "[a", "*a", "a{3,1}", "a{", "\\", "[b-a]", "\\x1"})
    EXPECT_EQ(code(pattern), ErrorCode::InvalidArgument) << pattern;
  EXPECT_EQ(code(std::string(5'000, 'a')), ErrorCode::TooLarge);
  EXPECT_EQ(code("(((a{100}){100}){100}){100}"), ErrorCode::TooLarge);
  EXPECT_EQ(code("(a|b)*a(a|b){20}"), ErrorCode::TooLarge) << "two to the twentieth states";
  EXPECT_EQ(code(std::string(100, '(') + "a" + std::string(100, ')')), ErrorCode::TooLarge);
}

bool follows(std::string_view schema, std::string_view text) {
  const auto grammar = compile_json_schema(json::parse(schema).take());
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  if (!grammar.ok()) return false;
  JsonState state(*grammar);
  return state.advance(text) && state.is_complete();
}

TEST(Pattern, HoldsInJsonStringsWithTheirEscapes) {
  EXPECT_TRUE(follows(R"({"type":"string","pattern":"^a\"b\\\\$"})", R"("a\"b\\")"));
  EXPECT_FALSE(follows(R"({"type":"string","pattern":"^a\"b$"})", R"("ab")"));
  EXPECT_TRUE(follows(R"({"pattern":"^\\s$"})", R"("\n")"));
  EXPECT_TRUE(follows(R"({"pattern":"^\\x01$"})", "\"\\u0001\""));
  EXPECT_TRUE(follows(R"({"pattern":"^[\\u00e4-\\u00fc]+$"})", "\"äö\""));
  EXPECT_FALSE(follows(R"({"pattern":"^[\\u00e4-\\u00fc]+$"})", "\"ãö\""));
  EXPECT_TRUE(follows(R"({"pattern":"^.$"})", "\"😀\""));
  EXPECT_TRUE(follows(R"({"pattern":"^[^a]$"})", "\"€\""));
  EXPECT_TRUE(follows(R"({"type":"string","pattern":"b","minLength":3})", R"("abc")"));
  EXPECT_FALSE(follows(R"({"type":"string","pattern":"b","minLength":3})", R"("ab")"));
}

TEST(Pattern, ManyOfASchemaHaveOneBudget) {
  json::Object properties;
  for (int i = 0; i < 2'000; ++i) {
    const std::string name = "p" + std::to_string(i);
    properties[name] = json::Object{{"pattern", "(a|b)*a(a|b){8}" + name}};
  }
  const auto grammar = compile_json_schema(json::Object{{"properties", properties}});
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().code, ErrorCode::TooLarge) << grammar.error().message;
}

// Whatever is written letter by letter among what is allowed can be finished and matches.
TEST(Pattern, RandomTextsMatch) {
  std::mt19937 random(3);
  const auto automaton = compile(kEmail);
  ASSERT_TRUE(automaton.ok());
  const json::Object schema{{"type", "string"},
                            {"pattern", boost::json::string_view(kEmail.data(), kEmail.size())}};
  const auto grammar = compile_json_schema(schema);
  ASSERT_TRUE(grammar.ok());
  int finished = 0;
  for (int round = 0; round < 200; ++round) {
    JsonState state(*grammar);
    std::string text;
    while (!state.is_complete() && text.size() < 60) {
      std::vector<char> allowed;
      for (char c = ' '; c < 127; ++c) {
        JsonState next = state;
        if (next.advance(static_cast<std::uint8_t>(c))) allowed.push_back(c);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      text += allowed[random() % allowed.size()];
      ASSERT_TRUE(state.advance(static_cast<std::uint8_t>(text.back())));
    }
    if (!state.is_complete()) continue;
    ++finished;
    const std::string value(json::view(json::parse(text).take().get_string()));
    EXPECT_TRUE(matches(*automaton, value)) << value;
  }
  EXPECT_GT(finished, 0);
}

}  // namespace
}  // namespace llorch::grammar
