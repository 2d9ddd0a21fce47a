#include "openai/answer_parser.h"

#include <gtest/gtest.h>

#include <random>

namespace llorch::openai {
namespace {

using Kind = AnswerPart::Kind;

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Answer {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Answer&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "content " << json::serialize(json::Value(answer.content)) << ", reasoning "
      << json::serialize(json::Value(answer.reasoning));
  for (const Call& call : answer.calls) out << ", " << call.name << "(" << call.arguments << ")";
  return out;
}

void append(Answer& answer, const AnswerParts& parts) {
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case Kind::Content:
        answer.content += part.text;
        break;
      case Kind::Reasoning:
        answer.reasoning += part.text;
        break;
      case Kind::CallBegin:
        ASSERT_EQ(part.call, answer.calls.size());
        answer.calls.push_back({part.text, ""});
        break;
      case Kind::CallArguments:
        ASSERT_EQ(part.call + 1, answer.calls.size());
        answer.calls.back().arguments += part.text;
        break;
    }
  }
}

std::shared_ptr<const ToolList> weather_tools() {
  const Result<json::Value> schema = json::parse(
      R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}})");
  return std::make_shared<const ToolList>(
      ToolList{{"get_weather", schema.value()}, {"get_time", nullptr}});
}

struct Case {
  std::string_view what;
  ToolDialect dialect;
  std::string text;
  Answer expected;
  ThinkingStyle thinking = ThinkingStyle::None;
  bool was_cut = false;
  bool begins_thinking = false;
  std::string opening = {};
  std::vector<std::string> special = {};
  std::size_t max_calls = 128;
  bool with_tools = true;
  bool calls_only = false;
};

ParserSettings settings_of(const Case& one) {
  ParserSettings settings;
  settings.dialect = one.dialect;
  settings.thinking = one.thinking;
  if (one.with_tools) settings.tools = weather_tools();
  settings.begins_thinking = one.begins_thinking;
  settings.opening = one.opening;
  settings.special_markers = one.special;
  settings.max_calls = one.max_calls;
  settings.calls_only = one.calls_only;
  return settings;
}

// The answer, fed in pieces that end at `cuts`.
Answer parse(const Case& one, const std::vector<std::size_t>& cuts) {
  AnswerParser parser(settings_of(one));
  Answer answer;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    append(answer, parser.add(std::string_view(one.text).substr(from, cut - from)));
    from = cut;
  }
  append(answer, parser.add(std::string_view(one.text).substr(from)));
  append(answer, parser.finish(one.was_cut));
  EXPECT_EQ(parser.num_calls(), answer.calls.size());
  return answer;
}

const Call kParis = {"get_weather", R"({"city": "Paris"})"};
const Call kRome = {"get_weather", R"({"city": "Rome"})"};

using enum ToolDialect;
const std::string kParisCall = R"({"name": "get_weather", "arguments": {"city": "Paris"}})";
const std::string kRomeCall = R"({"name": "get_weather", "arguments": {"city": "Rome"}})";
const std::string kLlamaParis = R"({"name": "get_weather", "parameters": {"city": "Paris"}})";
const std::string kLlamaRome = R"({"name": "get_weather", "parameters": {"city": "Rome"}})";
const std::vector<Case> kCases = {
    {"plain text", Hermes, "Hello <b>you</b>, 1 < 2\n", {"Hello <b>you</b>, 1 < 2\n", "", {}}},
    {"one call", Hermes, "<tool_call>\n" + kParisCall + "\n</tool_call>", {"", "", {kParis}}},
    {"text before, two calls",
     Hermes,
     "Let me see.\n\n<tool_call>\n" + kParisCall + "\n</tool_call>\n<tool_call>\n" + kRomeCall +
         "\n</tool_call>\n",
     {"Let me see.", "", {kParis, kRome}}},
    {"text after",
     Hermes,
     "<tool_call>" + kParisCall + "</tool_call> done",
     {" done", "", {kParis}}},
    {"no closing tag", Hermes, "<tool_call>\n" + kParisCall, {"", "", {kParis}}},
    {"a brace too few",
     Hermes,
     "<tool_call>\n" + kParisCall.substr(0, kParisCall.size() - 1) + "\n</tool_call>",
     {"", "", {kParis}}},
    {"a list in the tag",
     Hermes,
     "<tool_call>[" + kParisCall + ", " + kRomeCall + "]</tool_call>",
     {"", "", {kParis, kRome}}},
    {"looks like a call",
     Hermes,
     "a <tool_call>\nno json</tool_call> b",
     {"a <tool_call>\nno json</tool_call> b", "", {}}},
    {"a tag in a tag",
     Hermes,
     "<tool_call><tool_call>\n" + kParisCall,
     {"<tool_call>", "", {kParis}}},
    {"an object that is no call",
     Hermes,
     R"(<tool_call>{"a": 1}</tool_call>)",
     {R"(<tool_call>{"a": 1}</tool_call>)", "", {}}},
    {"half a tag", Hermes, "x <tool_ca", {"x <tool_ca", "", {}}},
    {"a name nobody gave",
     Hermes,
     R"(<tool_call>{"name": "other", "arguments": {}}</tool_call>)",
     {"", "", {{"other", "{}"}}}},
    {"arguments first, an id",
     Hermes,
     R"(<tool_call>{"arguments": {"city": "Paris"}, "id": [1, "}"], "name": "get_weather"}</tool_call>)",
     {"", "", {kParis}}},
    {"no arguments", Hermes, R"(<tool_call>{"name":"get_time"})", {"", "", {{"get_time", "{}"}}}},
    {"arguments as text",
     Hermes,
     R"(<tool_call>{"name":"get_weather","arguments":"{\"city\": \"Paris\"}"}</tool_call>)",
     {"", "", {kParis}}},
    {"null",
     Hermes,
     R"(<tool_call>{"name":"get_time","arguments":null}</tool_call>)",
     {"", "", {{"get_time", "{}"}}}},
    {"brackets in strings",
     Hermes,
     R"(<tool_call>{"name":"f","arguments":{"a":"}\"{</tool_call>","b":[{}]}}</tool_call>)",
     {"", "", {{"f", R"({"a":"}\"{</tool_call>","b":[{}]})"}}}},
    {"members after the arguments",
     Hermes,
     R"(<tool_call>{"name":"f","arguments":{}, "id": "x}", "n": 1}</tool_call>.)",
     {".", "", {{"f", "{}"}}}},
    {"cut in the arguments",
     Hermes,
     R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Par)",
     {"", "", {{"get_weather", R"({"city": "Par)"}}},
     ThinkingStyle::None,
     true},
    {"cut after the name",
     Hermes,
     R"(<tool_call>{"name": "get_weather", )",
     {"", "", {{"get_weather", ""}}},
     ThinkingStyle::None,
     true},
    {"cut before the name",
     Hermes,
     R"(<tool_call>{"name": "get_wea)",
     {R"(<tool_call>{"name": "get_wea)", "", {}},
     ThinkingStyle::None,
     true},
    {"ended after the name",
     Hermes,
     R"(<tool_call>{"name": "get_weather", )",
     {R"(<tool_call>{"name": "get_weather", )", "", {}}},
    {.what = "one call is enough",
     .dialect = Hermes,
     .text =
         "<tool_call>" + kParisCall + "</tool_call>\n<tool_call>" + kRomeCall + "</tool_call> x",
     .expected = {"", "", {kParis}},
     .max_calls = 1},
    {.what = "no tools, no calls",
     .dialect = Hermes,
     .text = "<tool_call>" + kParisCall + "</tool_call>",
     .expected = {"<tool_call>" + kParisCall + "</tool_call>", "", {}},
     .with_tools = false},
    {.what = "opened by the prompt",
     .dialect = Hermes,
     .text = kParisCall + "\n</tool_call>",
     .expected = {"", "", {kParis}},
     .opening = "<tool_call>\n"},
    {.what = "opened by the prompt, cut between two",
     .dialect = Hermes,
     .text = kParisCall + "\n</tool_call>\n<tool_c",
     .expected = {"", "", {kParis}},
     .was_cut = true,
     .opening = "<tool_call>\n",
     .calls_only = true},
    {.what = "opened by the prompt, cut at once",
     .dialect = Hermes,
     .text = "{",
     .expected = {"{", "", {}},
     .was_cut = true,
     .opening = "<tool_call>\n"},

    {"thinks, then calls",
     Hermes,
     "<think>\nHm, <b> \n</think>\n\nSure.\n<tool_call>\n" + kParisCall + "\n</tool_call>",
     {"Sure.", "Hm, <b>", {kParis}},
     ThinkingStyle::Think},
    {"does not think", Hermes, " Hi", {" Hi", "", {}}, ThinkingStyle::Think},
    {"a tag later is text", Hermes, "Hi <think>", {"Hi <think>", "", {}}, ThinkingStyle::Think},
    {.what = "begins within the thought",
     .dialect = Hermes,
     .text = "so\n</think>\n\nYes",
     .expected = {"Yes", "so", {}},
     .thinking = ThinkingStyle::Think,
     .begins_thinking = true},
    {.what = "opens again",
     .dialect = Hermes,
     .text = "<think>\nso</think>Yes",
     .expected = {"Yes", "so", {}},
     .thinking = ThinkingStyle::Think,
     .begins_thinking = true,
     .with_tools = false},
    {.what = "cut in the thought",
     .dialect = None,
     .text = "<think>so </th",
     .expected = {"", "so </th", {}},
     .thinking = ThinkingStyle::Think,
     .was_cut = true,
     .with_tools = false},
    {.what = "brackets around the thought",
     .dialect = Mistral,
     .text = "[THINK]so[/THINK]Yes",
     .expected = {"Yes", "so", {}},
     .thinking = ThinkingStyle::Bracket,
     .special = {"[THINK]", "[/THINK]"}},

    {"elements",
     QwenXml,
     "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     {"I look.", "", {{"get_weather", R"({"city": "12", "days": 3})"}}}},
    {"elements without a frame",
     QwenXml,
     "<function=get_time>\n</function>\n",
     {"", "", {{"get_time", "{}"}}}},
    {"elements, cut",
     QwenXml,
     "<tool_call><function=get_weather><parameter=city>Rome</parameter><parameter=da",
     {"", "", {{"get_weather", R"({"city": "Rome")"}}},
     ThinkingStyle::None,
     true},
    {"json in the frame of elements",
     QwenXml,
     "<tool_call>\n" + kParisCall + "\n</tool_call>",
     {"", "", {kParis}}},
    {"an element that is none", QwenXml, "<tool_call><p>", {"<tool_call><p>", "", {}}},

    {"bare", Llama, kLlamaParis, {"", "", {kParis}}},
    {"bare with space", Llama, "\n\n" + kLlamaParis + "\n", {"", "", {kParis}}},
    {"bare, two", Llama, kLlamaParis + "; " + kLlamaRome, {"", "", {kParis, kRome}}},
    {"after the tag", Llama, "<|python_tag|>" + kLlamaParis, {"", "", {kParis}}},
    {"bare, not known",
     Llama,
     R"({"name": "Bob", "parameters": {}})",
     {R"({"name": "Bob", "parameters": {}})", "", {}}},
    {"bare, but not first", Llama, "It is " + kLlamaParis, {"It is " + kLlamaParis, "", {}}},
    {"bare, but another object", Llama, R"({"a": [1]} x)", {R"({"a": [1]} x)", "", {}}},
    {"bare, then text", Llama, kLlamaParis + ", x", {", x", "", {kParis}}},
    {"a function tag",
     Llama,
     R"(<function=get_weather>{"city": "Paris"}</function>)",
     {"", "", {kParis}}},
    {.what = "a hidden tag before code",
     .dialect = Llama,
     .text = "<|python_tag|>print(1)",
     .expected = {"print(1)", "", {}},
     .special = {"<|python_tag|>"}},

    {"a list",
     Mistral,
     "[TOOL_CALLS] [" + kParisCall + ", " + kRomeCall + "]",
     {"", "", {kParis, kRome}}},
    {"a list with ids",
     Mistral,
     R"([TOOL_CALLS][{"name":"f","arguments":{},"id":"abc"}])",
     {"", "", {{"f", "{}"}}}},
    {"a name",
     MistralArgs,
     R"([TOOL_CALLS]get_weather[ARGS]{"city": "Paris"})",
     {"", "", {kParis}}},
    {"names",
     MistralArgs,
     R"(Ok.[TOOL_CALLS]get_weather[CALL_ID]a1b[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time{})",
     {"Ok.", "", {kParis, {"get_time", "{}"}}}},
    {.what = "hidden markers are never content",
     .dialect = MistralArgs,
     .text = "a[TOOL_CALLS] b[ARGS]c",
     .expected = {"a bc", "", {}},
     .special = {"[TOOL_CALLS]", "[ARGS]"}},

    {"phi", Phi, "<|tool_call|>[" + kParisCall + "]<|/tool_call|>", {"", "", {kParis}}},
    {"functools", Functools, " functools[" + kParisCall + "]", {"", "", {kParis}}},
    {"the word functools",
     Functools,
     "import functools\nfunctools.reduce",
     {"import functools\nfunctools.reduce", "", {}}},

    {"in a fence", Json, "```json\n[" + kParisCall + "]\n```", {"", "", {kParis}}},
    {"in a fence of code", Json, "```tool_code\n" + kLlamaParis + "\n```\n", {"", "", {kParis}}},
    {"bare json", Json, kLlamaParis, {"", "", {kParis}}},
    {"another fence", Json, "```json\n{\"a\":1}\n```", {"```json\n{\"a\":1}\n```", "", {}}},
    {"a fence later", Json, "So: ```json\n" + kLlamaParis, {"So: ```json\n" + kLlamaParis, "", {}}},

    {"deepseek",
     DeepSeek,
     "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
     "\"Paris\"}"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     {"Hm.", "", {kParis, {"get_time", "{}"}}}},
    {"deepseek's older form",
     DeepSeek,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
     "{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"", "", {kParis}}},

    {"harmony",
     Harmony,
     "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
     {"", "Need weather.", {kParis}},
     ThinkingStyle::Harmony},
    {"harmony, recipient first",
     Harmony,
     "<|start|>assistant to=functions.get_time<|channel|>commentary<|message|>{}<|call|>",
     {"", "", {{"get_time", "{}"}}},
     ThinkingStyle::Harmony},
    {"harmony, an answer",
     Harmony,
     "<|channel|>analysis<|message|>So<|end|><|start|>assistant<|channel|>final<|message|>Hi <b",
     {"Hi <b", "So", {}},
     ThinkingStyle::Harmony},
    {"harmony without a header", Harmony, " Hi", {" Hi", "", {}}, ThinkingStyle::Harmony},
    {.what = "harmony, opened by the prompt",
     .dialect = Harmony,
     .text = "get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}",
     .expected = {"", "", {kParis}},
     .thinking = ThinkingStyle::Harmony,
     .opening = "<|channel|>commentary to=functions."},
    {"a dialect nobody knows",
     None,
     "<tool_call>" + kParisCall,
     {"<tool_call>" + kParisCall, "", {}}},
};

TEST(AnswerParser, FindsCallsThoughtsAndText) {
  for (const Case& one : kCases) EXPECT_EQ(parse(one, {}), one.expected) << one.what;
}

TEST(AnswerParser, IsTheSameWhereverThePiecesAreCut) {
  std::mt19937 random(7);
  for (const Case& one : kCases) {
    std::vector<std::size_t> all;
    for (std::size_t i = 1; i < one.text.size(); ++i) {
      all.push_back(i);
      ASSERT_EQ(parse(one, {i}), one.expected) << one.what << ", cut at " << i;
      for (std::size_t j = i + 1; j < one.text.size() && one.text.size() < 80; ++j)
        ASSERT_EQ(parse(one, {i, j}), one.expected) << one.what << ", " << i << " and " << j;
    }
    ASSERT_EQ(parse(one, all), one.expected) << one.what << ", byte by byte";
    for (int round = 0; round < 50; ++round) {
      std::vector<std::size_t> some;
      for (const std::size_t cut : all) {
        if (random() % 4 == 0) some.push_back(cut);
      }
      ASSERT_EQ(parse(one, some), one.expected) << one.what << ", round " << round;
    }
  }
}

TEST(AnswerParser, SaysTheArgumentsAsTheyCome) {
  Case one{"", ToolDialect::Hermes, "", {}};
  AnswerParser parser(settings_of(one));
  const AnswerParts begin = parser.add(R"(<tool_call>{"name": "get_weather", "arguments": {"ci)");
  ASSERT_EQ(begin.size(), 2U);
  EXPECT_EQ(begin[0], (AnswerPart{Kind::CallBegin, "get_weather", 0}));
  EXPECT_EQ(begin[1], (AnswerPart{Kind::CallArguments, R"({"ci)", 0}));
  const AnswerParts more = parser.add(R"(ty": "P)");
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0], (AnswerPart{Kind::CallArguments, R"(ty": "P)", 0}));
}

TEST(AnswerParser, HoldsBackNoTextThatCannotBeACall) {
  Case one{"", ToolDialect::Hermes, "", {}};
  AnswerParser parser(settings_of(one));
  const AnswerParts parts = parser.add("one two <tool");
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].text, "one two");
}

TEST(AnswerParser, GivesUpOnAHeadThatNeverEnds) {
  Case one{"", ToolDialect::Hermes, "", {}};
  one.text = R"(<tool_call>{"x": ")" + std::string(20'000, 'a');
  one.expected.content = one.text;
  EXPECT_EQ(parse(one, {}), one.expected);
  EXPECT_EQ(parse(one, {9'000}), one.expected);
  EXPECT_EQ(parse(one, {100, 8'203, 8'204}), one.expected);
}

}  // namespace
}  // namespace llorch::openai
