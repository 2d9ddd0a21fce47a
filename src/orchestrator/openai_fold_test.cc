// The whole answer folded from a worker's chunks is the one that the worker itself would give.
#include "orchestrator/openai_fold.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "openai/answer.h"

namespace llorch::orchestrator {
namespace {

using openai::AnswerHead;
using openai::AnswerKind;
using openai::GenerationEvent;
using openai::GenerationResult;
using openai::TextPiece;
using openai::TokenReport;

TokenReport report_of(std::string_view text, float logprob) {
  TokenReport report;
  report.token = {std::string(text), std::string(text), logprob};
  report.top = {{"other", "other", -3.25F}, {std::string(text), std::string(text), logprob}};
  report.chars = text.size();
  return report;
}

// What a worker's engine says of one choice: `text` in pieces of random lengths.
std::vector<GenerationEvent> events_of(std::size_t choice, const std::string& text,
                                       bool with_logprobs, contract::StopReason reason,
                                       std::mt19937& random) {
  std::vector<GenerationEvent> events;
  contract::StartedEvent started;
  started.prompt_tokens = 11;
  started.cached_tokens = 4;
  events.push_back({choice, started});
  std::int64_t tokens = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = std::min<std::size_t>(1 + random() % 7, text.size() - at);
    TextPiece piece;
    piece.text = text.substr(at, size);
    piece.ids = {static_cast<std::int32_t>(1 + tokens)};
    if (with_logprobs)
      piece.tokens = {report_of(piece.text, -0.1F * static_cast<float>(1 + random() % 9))};
    events.push_back({choice, std::move(piece)});
    at += size;
    ++tokens;
  }
  contract::InferenceResult result;
  result.tokens_out = tokens;
  result.prompt_tokens = 11;
  result.stop_reason = reason;
  events.push_back({choice, GenerationResult(std::move(result))});
  return events;
}

struct Case {
  std::string name;
  AnswerHead head;
  std::vector<std::string> echoes;
  std::vector<std::string> texts;
  contract::StopReason reason = contract::StopReason::Eos;
};

void expect_same(const Case& each, unsigned seed) {
  SCOPED_TRACE(fmt::format("{} {}", each.name, seed));
  std::mt19937 random(seed);
  AnswerHead head = each.head;
  head.id = "chatcmpl-1";
  head.created = 5;
  head.model = "m";
  openai::Answer whole(head, each.echoes);
  head.include_usage = true;
  openai::Answer streamed(head, each.echoes);
  const bool is_chat = head.kind == AnswerKind::Chat;
  AnswerFold fold(is_chat ? fleet::JobKind::Chat : fleet::JobKind::Completion,
                  static_cast<std::uint32_t>(each.texts.size()), head.with_logprobs);
  const auto add = [&fold](const std::string& chunk) {
    EXPECT_TRUE(fold.add("data: " + chunk + "\n\n").ok());
  };
  for (std::size_t choice = 0; choice < each.texts.size(); ++choice) {
    for (const GenerationEvent& event :
         events_of(choice, each.texts[choice], head.with_logprobs, each.reason, random)) {
      whole.take(event);
      for (const std::string& chunk : streamed.chunks(event)) add(chunk);
    }
  }
  add(streamed.usage_chunk().value());
  EXPECT_EQ(json::serialize(fold.whole()), json::serialize(whole.whole()));
}

TEST(AnswerFold, EqualsTheWorkersOwnWholeAnswer) {
  AnswerHead completion{.kind = AnswerKind::Completion};
  AnswerHead chat{.kind = AnswerKind::Chat};
  AnswerHead thinking = chat;
  thinking.parser.thinking = openai::ThinkingStyle::Think;
  thinking.parser.dialect = openai::ToolDialect::Hermes;
  openai::ToolSpec tool;
  tool.name = "weather";
  thinking.parser.tools = std::make_shared<openai::ToolList>(openai::ToolList{tool});
  std::vector<Case> cases = {
      {"completion", completion, {""}, {"Once upon a time"}},
      {"echo", completion, {"A prompt. "}, {"Its answer."}, contract::StopReason::MaxTokens},
      {"three completions", completion, {"", "", ""}, {"one", "two two", "three three three"}},
      {"chat", chat, {""}, {"Hello \"you\"\n{}"}},
      {"two chats", chat, {"", ""}, {"a", ""}},
      {"call",
       thinking,
       {""},
       {"<think>hm, hm</think>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
        "\"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
        "{}}\n</tool_call>"}},
      {"text and call",
       thinking,
       {""},
       {"Let me see. <tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":[1,2]}}</tool_call>"}},
  };
  const std::size_t plain = cases.size();
  for (std::size_t i = 0; i < plain; ++i) {
    cases.push_back(cases[i]);
    cases.back().name += " with logprobs";
    cases.back().head.with_logprobs = true;
  }
  for (Case& each : cases) {
    each.head.choices_per_prompt = each.texts.size();
    for (unsigned seed = 0; seed < 20; ++seed) expect_same(each, seed);
  }
}

}  // namespace
}  // namespace llorch::orchestrator
