// An answer that is cut behind any of its chunks and goes on in another Answer, as on another
// worker: the chunks of both are those of the uncut one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "openai/answer.h"

namespace llorch::openai {
namespace {

struct Token {
  std::int32_t id;
  std::string text;  // empty: it came with the next
};

struct Case {
  std::string_view what;
  AnswerKind kind = AnswerKind::Chat;
  ParserSettings parser = {};
  std::string text = {};
  std::string tail = {};  // held back until the end
  contract::StopReason reason = contract::StopReason::Eos;
  bool with_logprobs = false;
  std::string echo = {};
};

// In pieces of two bytes; every third token makes no text of its own.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  std::int32_t id = 100;
  for (std::size_t at = 0; at < text.size(); at += 2) {
    if (id % 3 == 0) tokens.push_back({id++, ""});
    tokens.push_back({id++, std::string(text.substr(at, 2))});
  }
  return tokens;
}

TextPiece piece_of(std::string text, std::vector<std::int32_t> ids, bool with_logprobs) {
  TextPiece piece{.text = std::move(text), .ids = std::move(ids)};
  if (!with_logprobs) return piece;
  for (const std::int32_t id : piece.ids) {
    TokenReport report;
    report.token = {"t", "t", -static_cast<float>(id) / 64};
    report.chars = 1;
    piece.tokens.push_back(report);
  }
  return piece;
}

AnswerHead head_of(const Case& one, std::string id) {
  AnswerHead head;
  head.kind = one.kind;
  head.id = std::move(id);
  head.model = "m";
  head.parser = one.parser;
  head.with_ids = true;
  head.with_logprobs = one.with_logprobs;
  head.call_source = "the request";
  return head;
}

// A chunk without its id.
std::string without_head(const std::string& chunk) {
  json::Object object = json::parse(chunk).take().get_object();
  object.erase("id");
  return json::serialize(object);
}

std::vector<std::int32_t> ids_of(const std::string& chunk) {
  const json::Object object = json::parse(chunk).take().get_object();
  std::vector<std::int32_t> ids;
  const json::Value* ours = object.if_contains("llorch");
  if (ours == nullptr) return ids;
  for (const json::Value& id : ours->at("ids").get_array())
    ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  return ids;
}

// All chunks of the case from `told` tokens on; each inner list left in one write.
std::vector<std::vector<std::string>> play(const Case& one, std::string id, std::size_t told) {
  Answer answer(head_of(one, std::move(id)), {one.echo});
  const std::vector<Token> tokens = tokens_of(one.text);
  std::vector<std::vector<std::string>> writes;
  const auto hear = [&](auto what) {
    std::vector<std::string> chunks = answer.chunks({0, std::move(what)});
    if (!chunks.empty()) writes.push_back(std::move(chunks));
  };
  if (told > 0) answer.set_resumed(0);
  hear(contract::StartedEvent{.prompt_tokens = 3});
  ToldText said;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids.push_back(tokens[i].id);
    const bool is_last_told = i + 1 == told;
    if (tokens[i].text.empty() && !is_last_told) continue;
    TextPiece piece = piece_of(tokens[i].text, std::exchange(ids, {}), one.with_logprobs);
    if (i < told) {
      said.pieces.push_back(std::move(piece));
      if (is_last_told) hear(std::exchange(said, {}));
    } else {
      hear(std::move(piece));
    }
  }
  if (!one.tail.empty()) {
    TextPiece tail = piece_of(one.tail, {900}, one.with_logprobs);
    tail.is_tail = true;
    hear(std::move(tail));
  }
  contract::InferenceResult result;
  result.tokens_out = static_cast<std::int64_t>(tokens.size());
  result.stop_reason = one.reason;
  if (one.tail.empty()) result.ids = {901};
  hear(GenerationResult(result));
  EXPECT_TRUE(answer.is_complete());
  return writes;
}

std::shared_ptr<const ToolList> tools() {
  return std::make_shared<const ToolList>(ToolList{{"get_weather", nullptr}});
}

std::vector<Case> cases() {
  ParserSettings hermes;
  hermes.dialect = ToolDialect::Hermes;
  hermes.thinking = ThinkingStyle::Think;
  hermes.tools = tools();
  ParserSettings one_call = hermes;
  one_call.max_calls = 1;
  ParserSettings mistral;
  mistral.dialect = ToolDialect::Mistral;
  mistral.tools = tools();
  const std::string call =
      R"(<tool_call>{"name":"get_weather","arguments":{"city":"Paris"}}</tool_call>)";
  const std::string thought = "<think>It rains.</think>So: ";
  std::vector<Case> all = {
      {.what = "plain chat", .text = "Hello you there"},
      {.what = "a tail", .text = "Hello you there", .tail = "##"},
      {.what = "completion", .kind = AnswerKind::Completion, .text = "Hello you", .echo = "Say: "},
      {.what = "logprobs",
       .kind = AnswerKind::Completion,
       .text = "Hello you",
       .tail = "#",
       .with_logprobs = true,
       .echo = "Say: "},
      {.what = "chat's logprobs", .text = "Hello you", .with_logprobs = true},
      {.what = "thinking and calls", .parser = hermes, .text = thought + call + call},
      {.what = "thinking without end",
       .parser = hermes,
       .text = "<think>It rains and",
       .reason = contract::StopReason::MaxTokens},
      {.what = "what only looks like a call",
       .parser = hermes,
       .text = "a <tool_call> b",
       .tail = "<to"},
      {.what = "Mistral",
       .parser = mistral,
       .text = R"([TOOL_CALLS][{"name":"get_weather","arguments":{"a":1}}])"},
      {.what = "as many calls as were asked for", .parser = one_call, .text = call + " and more"},
      {.what = "nothing at all"},
  };
  return all;
}

TEST(ResumedAnswer, GoesOnWithTheSameChunks) {
  std::size_t cuts = 0;
  for (const Case& one : cases()) {
    const auto whole = play(one, "first", 0);
    std::vector<std::string> expected;
    std::vector<std::pair<std::size_t, std::size_t>> borders = {};  // chunks told, ids told
    std::size_t num_ids = 0;
    for (const std::vector<std::string>& write : whole) {
      for (const std::string& chunk : write) expected.push_back(without_head(chunk));
      num_ids += ids_of(write.back()).size();
      borders.emplace_back(expected.size(), num_ids);
    }
    borders.pop_back();  // behind the last one there is nothing to go on from
    for (const auto& [num_chunks, told] : borders) {
      std::vector<std::string> got(expected.begin(),
                                   expected.begin() + static_cast<std::ptrdiff_t>(num_chunks));
      for (const std::vector<std::string>& write : play(one, "second", told)) {
        for (const std::string& chunk : write) got.push_back(without_head(chunk));
      }
      EXPECT_EQ(got, expected) << one.what << ", cut after " << told << " ids";
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 70U);
}

TEST(ResumedAnswer, EveryWriteEndsWithIdsOrWithTheEnd) {
  for (const Case& one : cases()) {
    for (const std::vector<std::string>& write : play(one, "a", 0)) {
      for (std::size_t i = 0; i < write.size(); ++i) {
        const bool is_end = write[i].find(R"("finish_reason":null)") == std::string::npos;
        const bool has_ids = !ids_of(write[i]).empty();
        EXPECT_EQ(has_ids || is_end, i + 1 == write.size()) << one.what << ": " << write[i];
      }
    }
  }
}

TEST(ResumedAnswer, HasItsIdsLastInTheseBytes) {
  Case plain{.what = "", .text = "abcd"};
  const auto writes = play(plain, "x", 0);
  ASSERT_EQ(writes.size(), 3U);
  ASSERT_EQ(writes[0].size(), 2U) << "the role comes with the first text";
  EXPECT_THAT(writes[0][0], testing::HasSubstr(R"("role":"assistant")"));
  EXPECT_THAT(writes[0][0], testing::Not(testing::HasSubstr("llorch\":")));
  EXPECT_THAT(writes[0][1], testing::EndsWith(R"(,"llorch":{"ids":[100]}})"));
  EXPECT_THAT(writes[1][0], testing::EndsWith(R"(,"llorch":{"ids":[101]}})"));
  EXPECT_THAT(writes[2][0], testing::EndsWith(R"(,"llorch":{"ids":[901]}})"));
}

TEST(ResumedAnswer, WithoutIdsTheRoleDoesNotWait) {
  AnswerHead head = head_of({.what = ""}, "x");
  head.with_ids = false;
  Answer answer(std::move(head), {""});
  EXPECT_EQ(answer.chunks({0, contract::StartedEvent()}).size(), 1U);
  const auto chunks = answer.chunks({0, TextPiece{.text = "a", .ids = {7}}});
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_THAT(chunks[0], testing::Not(testing::HasSubstr("llorch\":")));
}

TEST(ResumedAnswer, WholeHasAllOfIt) {
  Case one = cases()[5];
  AnswerHead head = head_of(one, "x");
  Answer whole(head, {""});
  Answer resumed(head, {""});
  resumed.set_resumed(0);
  const std::string begin = one.text.substr(0, one.text.size() - 20);
  const std::string rest = one.text.substr(one.text.size() - 20);
  whole.take({0, TextPiece{.text = one.text, .ids = {1, 2, 3}}});
  resumed.take({0, ToldText{{{.text = begin, .ids = {1, 2}}}}});
  resumed.take({0, TextPiece{.text = rest, .ids = {3}}});
  contract::InferenceResult result;
  result.tokens_out = 3;
  result.stop_reason = contract::StopReason::Eos;
  whole.take({0, GenerationResult(result)});
  resumed.take({0, GenerationResult(result)});
  EXPECT_EQ(json::serialize(resumed.whole()), json::serialize(whole.whole()));
  EXPECT_EQ(resumed.tokens_out(), 3);
}

}  // namespace
}  // namespace llorch::openai
