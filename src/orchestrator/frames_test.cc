#include "orchestrator/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::orchestrator {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

std::vector<std::string> read(FrameReader& reader, std::string_view bytes) {
  std::vector<Frame> frames;
  EXPECT_TRUE(reader.feed(bytes, frames).ok());
  std::vector<std::string> texts;
  for (const Frame& frame : frames)
    texts.push_back(std::string(frame.event) + "|" + std::string(frame.data));
  return texts;
}

TEST(FrameReader, FindsEventsAndDropsComments) {
  FrameReader reader;
  EXPECT_THAT(read(reader, "event: token\ndata: {}\n\n: keep-alive\n\ndata: [DONE]\n\nda"),
              ElementsAre("token|{}", "|[DONE]"));
  EXPECT_THAT(read(reader, "ta: x\n"), IsEmpty());
  EXPECT_THAT(read(reader, "\n"), ElementsAre("|x"));
  EXPECT_FALSE(reader.is_odd());
}

TEST(FrameReader, ReadsOtherFormsTheLongWay) {
  FrameReader reader;
  EXPECT_THAT(read(reader, "data: plain\n\ndata: a\r\ndata: b\r\n\r\n"),
              ElementsAre("|plain", "|a\nb"));
  EXPECT_TRUE(reader.is_odd());
  EXPECT_THAT(read(reader, "event: e\ndata: c\n\n"), ElementsAre("e|c"));
}

TEST(FrameReader, AnEventWithoutEndIsAnError) {
  FrameReader reader;
  std::vector<Frame> frames;
  const std::string piece(std::size_t{1} << 20, 'x');
  Status last = ok_status();
  for (int i = 0; i < 6 && last.ok(); ++i) last = reader.feed("data: " + piece, frames);
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().code, ErrorCode::TooLarge);
}

struct TapCase {
  std::string_view data;
  TailForm form;
  std::vector<std::int32_t> ids;
  std::string_view text;
  bool is_odd;
};

TEST(TapIds, ReadsThemFromTheEnd) {
  const TapCase cases[] = {
      {R"({"t":"a","i":0,"ids":[7453]})", TailForm::Execute, {7453}, R"({"t":"a","i":0})", false},
      {R"({"t":"a","i":0,"ids":[1,2,0]})",
       TailForm::Execute,
       {1, 2, 0},
       R"({"t":"a","i":0})",
       false},
      {R"({"t":",\"ids\":[1]}","i":0})",
       TailForm::Execute,
       {},
       R"({"t":",\"ids\":[1]}","i":0})",
       false},
      {R"({"choices":[],"llorch":{"ids":[5]}})", TailForm::OpenAi, {5}, R"({"choices":[]})", false},
      {R"({"ids":[5],"t":"a"})", TailForm::Execute, {5}, R"({"t":"a"})", true},
      {R"({"t":"a", "ids": [5, 6]})", TailForm::Execute, {5, 6}, R"({"t":"a"})", true},
      {R"({"a":1,"llorch":{"ids":[5],"x":1}})", TailForm::OpenAi, {5}, R"({"a":1})", true},
      {R"({"a":1})", TailForm::OpenAi, {}, R"({"a":1})", false},
  };
  for (const TapCase& each : cases) {
    std::vector<std::int32_t> ids;
    const Result<TappedData> tapped = tap_ids(each.data, each.form, ids);
    ASSERT_TRUE(tapped.ok()) << each.data;
    EXPECT_EQ(ids, each.ids) << each.data;
    EXPECT_EQ(tapped->text(), each.text);
    EXPECT_EQ(tapped->was_odd, each.is_odd) << each.data;
  }
}

TEST(TapIds, RefusesWhatIsNoToken) {
  for (const std::string_view data :
       {R"({"t":"a","ids":[-1]})", R"({"t":"a","ids":[4294967296]})", R"({"t":"a","ids":"x"})",
        R"({"t":"a","ids":[1.5]})", R"({"t":"a","ids":[1])"}) {
    std::vector<std::int32_t> ids;
    const Result<TappedData> tapped = tap_ids(data, TailForm::Execute, ids);
    ASSERT_FALSE(tapped.ok()) << data;
    EXPECT_EQ(tapped.error().code, ErrorCode::Corrupt);
  }
}

TEST(HeadSwap, PutsTheJobsOwnHeadInFront) {
  HeadSwap head({"chatcmpl-job", 7, "story"});
  const std::string chunk =
      R"({"id":"chatcmpl-w","object":"chat.completion.chunk","created":5,"model":"file","system_fingerprint":"f","choices":[{"index":1,"delta":{"role":"assistant"},"finish_reason":null}]})";
  for (int i = 0; i < 2; ++i) {
    const auto swapped = head.swap(chunk);
    ASSERT_TRUE(swapped);
    EXPECT_EQ(
        swapped->head,
        R"({"id":"chatcmpl-job","object":"chat.completion.chunk","created":7,"model":"story","system_fingerprint":"f")");
    const ChunkFacts facts = chunk_facts(swapped->rest);
    EXPECT_EQ(facts.choice, 1U);
    EXPECT_TRUE(facts.is_role);
    EXPECT_FALSE(facts.finishes);
  }
  EXPECT_EQ(head.worker_id(), "chatcmpl-w");
  EXPECT_FALSE(head.swap(R"({"error":{"message":"x"}})"));
}

TEST(ChunkFacts, KnowsTheLastChunkAndTheUsage) {
  EXPECT_TRUE(
      chunk_facts(R"(,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]})")
          .finishes);
  EXPECT_FALSE(
      chunk_facts(
          R"(,"choices":[{"index":0,"delta":{"content":"\"finish_reason\":\"stop"},"finish_reason":null}]})")
          .finishes);
  EXPECT_FALSE(chunk_facts(R"(,"choices":[],"usage":{}})").choice);
}

}  // namespace
}  // namespace llorch::orchestrator
