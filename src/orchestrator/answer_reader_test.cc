#include "orchestrator/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::orchestrator {
namespace {

using State = AnswerReader::State;
using ::testing::ElementsAre, ::testing::EndsWith, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not;

constexpr std::string_view kStarted =
    "event: started\ndata: {\"job_id\":\"j\",\"model\":\"m\",\"started_at\":"
    "\"2026-01-01T00:00:00Z\",\"prompt_tokens\":9,\"cached_tokens\":4}\n\n";
constexpr std::string_view kEnd =
    "event: end\ndata: {\"tokens_out\":3,\"decode_time_ms\":5,\"stop_reason\":\"eos\","
    "\"stop_sequence_matched\":null,\"prompt_tokens\":9,\"ids\":[4]}\n\n";

std::string token(std::string_view text, int index, std::string_view ids) {
  return "event: token\ndata: {\"t\":\"" + std::string(text) + "\",\"i\":" + std::to_string(index) +
         ",\"ids\":[" + std::string(ids) + "]}\n\n";
}

std::string chunk(std::string_view choice, std::string_view ids = {}) {
  std::string text =
      "data: {\"id\":\"chatcmpl-w\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":"
      "\"file\",\"choices\":[" +
      std::string(choice) + "],\"usage\":null";
  if (!ids.empty()) text += ",\"llorch\":{\"ids\":[" + std::string(ids) + "]}";
  return text + "}\n\n";
}

AnswerForm chat_form(std::uint32_t choices = 1) {
  return {.kind = fleet::JobKind::Chat, .choices = choices, .head = {"chatcmpl-job", 7, "story"}};
}

TEST(AnswerReader, EveryEventOfExecuteStaysAsItIs) {
  const std::string stream = std::string(kStarted) + token("Once", 0, "1") + token(" a", 1, "2,3");
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    AnswerReader reader({}, {});
    std::vector<AnswerStep> steps;
    ASSERT_TRUE(reader.feed(std::string_view(stream).substr(0, cut), steps).ok());
    ASSERT_TRUE(reader.feed(std::string_view(stream).substr(cut), steps).ok());
    std::string text;
    for (const AnswerStep& step : steps) text += step.text;
    EXPECT_EQ(text, stream);
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_THAT(steps[2].ids, ElementsAre(2, 3));
    EXPECT_EQ(reader.facts().cached_tokens, 4U);
    EXPECT_EQ(reader.state(), State::Open);
  }
}

TEST(AnswerReader, StartedNamesTheJobAsItsClientKnowsIt) {
  AnswerReader reader({.job_id = "the-job"}, {});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(reader.feed(kStarted, steps).ok());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps[0].text, HasSubstr(R"(data: {"job_id":"the-job","model":"m")"));
  EXPECT_THAT(steps[0].text, EndsWith("\"cached_tokens\":4}\n\n"));
}

TEST(AnswerReader, EmbeddingsSayHowMuchTheyRead) {
  EXPECT_EQ(embedding_tokens(R"({"data":[],"usage":{"prompt_tokens":202,"total_tokens":202}})"),
            202U);
  EXPECT_EQ(embedding_tokens(R"({"data":[]})"), 0U);
  EXPECT_EQ(embedding_tokens(R"({"usage":{"prompt_tokens":)"), 0U);
}

TEST(AnswerReader, TheEndIsKeptApartAndItsIdsAreTold) {
  AnswerReader reader({}, {});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(reader.feed(kEnd, steps).ok());
  EXPECT_EQ(reader.state(), State::Whole);
  EXPECT_EQ(reader.end_text(), kEnd);
  EXPECT_EQ(reader.facts().stop_reason, "eos");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps[0].ids, ElementsAre(4));
  EXPECT_THAT(steps[0].text, IsEmpty());
}

TEST(AnswerReader, ASecondStartIsNotTold) {
  AnswerReader reader({}, {.has_started = true});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(reader.feed(kStarted, steps).ok());
  EXPECT_THAT(steps, IsEmpty());
  EXPECT_TRUE(reader.facts().has_started);
}

TEST(AnswerReader, ChunksWithoutIdsWaitForThoseWithThem) {
  AnswerReader reader(chat_form(), {});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(
      reader.feed(chunk(R"({"index":0,"delta":{"role":"assistant"},"finish_reason":null})"), steps)
          .ok());
  ASSERT_TRUE(
      reader.feed(chunk(R"({"index":0,"delta":{"tool_calls":[]},"finish_reason":null})"), steps)
          .ok());
  EXPECT_THAT(steps, IsEmpty());
  ASSERT_TRUE(
      reader.feed(chunk(R"({"index":0,"delta":{"content":"a"},"finish_reason":null})", "8"), steps)
          .ok());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps[0].ids, ElementsAre(8));
  EXPECT_THAT(steps[0].text.substr(steps[0].last_at), HasSubstr("\"content\":\"a\""));
  EXPECT_THAT(steps[0].text, Not(HasSubstr("llorch")));
  EXPECT_THAT(steps[0].text, Not(HasSubstr("usage")));
  EXPECT_THAT(steps[0].text, EndsWith("\"finish_reason\":null}]}\n\n"));
  EXPECT_THAT(steps[0].text, HasSubstr("\"id\":\"chatcmpl-job\""));
  EXPECT_EQ(reader.worker_job_id(), "chatcmpl-w");
}

TEST(AnswerReader, WhatTheClientAskedForStays) {
  AnswerForm form = chat_form();
  form.keeps_ids = form.keeps_usage = true;
  AnswerReader reader(form, {});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(
      reader.feed(chunk(R"({"index":0,"delta":{"content":"a"},"finish_reason":null})", "8"), steps)
          .ok());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps[0].text, EndsWith("],\"usage\":null,\"llorch\":{\"ids\":[8]}}\n\n"));
  ASSERT_TRUE(reader
                  .feed("data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n",
                        steps)
                  .ok());
  EXPECT_EQ(reader.state(), State::Whole);
  EXPECT_THAT(reader.end_text(), HasSubstr("\"prompt_tokens\":5"));
  EXPECT_THAT(reader.end_text(), EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(reader.facts().prompt_tokens, 5U);
  EXPECT_EQ(reader.facts().cached_tokens, 2U);
}

TEST(AnswerReader, RolesAndEndsOfChoicesAreToldOnce) {
  AnswerReader reader(chat_form(2), {.has_begun = {true, true}, .is_finished = {true, false}});
  std::vector<AnswerStep> steps;
  const std::string stream =
      chunk(R"({"index":0,"delta":{"role":"assistant"},"finish_reason":null})") +
      chunk(R"({"index":0,"delta":{},"finish_reason":"stop"})") +
      chunk(R"({"index":1,"delta":{"content":"b"},"finish_reason":null})", "3") +
      chunk(R"({"index":1,"delta":{},"finish_reason":"length"})");
  ASSERT_TRUE(reader.feed(stream, steps).ok());
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].choice, 1U);
  EXPECT_THAT(steps[0].ids, ElementsAre(3));
  EXPECT_THAT(steps[1].ids, IsEmpty());
  EXPECT_THAT(steps[1].text, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_TRUE(reader.is_finished());
  EXPECT_EQ(reader.state(), State::Open);
  EXPECT_EQ(missing_end(chat_form(2)), "data: [DONE]\n\n");
}

TEST(AnswerReader, SaysWhyAWorkerGaveUp) {
  AnswerReader execute({}, {});
  std::vector<AnswerStep> steps;
  ASSERT_TRUE(execute
                  .feed("event: error\ndata: {\"code\":\"VRAM_OOM\",\"message\":\"full\","
                        "\"retriable\":true}\n\n",
                        steps)
                  .ok());
  EXPECT_EQ(execute.state(), State::Failed);
  EXPECT_EQ(execute.error().code, ErrorCode::DeviceOutOfMemory);
  EXPECT_TRUE(execute.is_retriable());
  AnswerReader chat(chat_form(), {});
  ASSERT_TRUE(chat.feed("data: {\"error\":{\"message\":\"bad\",\"type\":\"invalid_request_error\","
                        "\"param\":null,\"code\":null}}\n\n",
                        steps)
                  .ok());
  EXPECT_EQ(chat.state(), State::Failed);
  EXPECT_EQ(chat.error().code, ErrorCode::InvalidArgument);
  EXPECT_FALSE(chat.is_retriable());
}

TEST(AnswerReader, MoreChoicesThanAskedForAreAnError) {
  AnswerReader reader(chat_form(), {});
  std::vector<AnswerStep> steps;
  const Status fed =
      reader.feed(chunk(R"({"index":1,"delta":{},"finish_reason":null})", "1"), steps);
  ASSERT_FALSE(fed.ok());
  EXPECT_EQ(fed.error().code, ErrorCode::Corrupt);
}

}  // namespace
}  // namespace llorch::orchestrator
