#include "http/sse.h"

#include <gtest/gtest.h>

namespace llorch::http {
namespace {

std::vector<SseEvent> parse(std::string_view text) {
  SseReader reader;
  std::vector<SseEvent> events;
  EXPECT_TRUE(reader.feed(text, events).ok());
  return events;
}

TEST(FormatEvent, WritesOneLinePerFieldAndPerLineOfData) {
  EXPECT_EQ(format_event("token", R"({"t":"a"})"), "event: token\ndata: {\"t\":\"a\"}\n\n");
  EXPECT_EQ(format_event("", "a\nb\r\nc\rd", "7"), "id: 7\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(format_event("e", ""), "event: e\ndata: \n\n");
}

TEST(FormatEvent, NamesCannotForgeLines) {
  EXPECT_EQ(format_event("a\ndata: x", "y", "1\r\n2"), "event: adata: x\nid: 12\ndata: y\n\n");
}

TEST(SseReader, ReadsWhatFormatEventWrites) {
  const std::string text = format_event("token", "line one\n\nline three\n", "42") +
                           std::string(kKeepAliveComment) + format_event("end", "");
  const std::vector<SseEvent> want = {{"token", "line one\n\nline three\n", "42"},
                                      {"end", "", "42"}};
  EXPECT_EQ(parse(text), want);
}

struct Case {
  const char* name;
  std::string text;
  std::vector<SseEvent> events;
};

std::vector<Case> standard_cases() {
  return {
      {"default type", "data: a\n\n", {{"message", "a", ""}}},
      {"only one space is dropped", "data:  a\ndata:b\n\n", {{"message", " a\nb", ""}}},
      {"carriage returns", "data: a\rdata: b\r\r", {{"message", "a\nb", ""}}},
      {"both line ends", "data: a\r\ndata: b\r\n\r\n", {{"message", "a\nb", ""}}},
      {"mixed line ends",
       "data: a\n\r\ndata: b\r\r\n",
       {{"message", "a", ""}, {"message", "b", ""}}},
      {"byte order mark",
       "\xEF\xBB\xBF"
       "data: a\n\n",
       {{"message", "a", ""}}},
      {"a second mark is content",
       "data: a\n\n\xEF\xBB\xBF"
       "data: b\n\n",
       {{"message", "a", ""}}},
      {"comments", ": hi\n:\ndata: a\n: in between\ndata: b\n\n", {{"message", "a\nb", ""}}},
      {"field without colon", "data\n\n", {{"message", "", ""}}},
      {"two empty data lines", "data\ndata\n\n", {{"message", "\n", ""}}},
      {"no data, no event", "event: x\n\ndata: a\n\n", {{"message", "a", ""}}},
      {"ids stay",
       "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
       {{"message", "a", "1"}, {"message", "b", "1"}, {"message", "c", ""}}},
      {"an id with NUL is ignored",
       std::string("id: 1\nid: a\0b\ndata: a\n\n", 23),
       {{"message", "a", "1"}}},
      {"the last event needs its blank line", "data: a\n\ndata: b\n", {{"message", "a", ""}}},
      {"unknown fields", "foo: bar\nData: x\ndata: a\n\n", {{"message", "a", ""}}},
      {"text beyond ASCII",
       "data: gr\xC3\xBC\xC3\x9F \xF0\x9F\x8E\x89\n\n",
       {{"message", "gr\xC3\xBC\xC3\x9F \xF0\x9F\x8E\x89", ""}}},
  };
}

TEST(SseReader, FollowsTheStandard) {
  for (const Case& c : standard_cases()) EXPECT_EQ(parse(c.text), c.events) << c.name;
}

TEST(SseReader, AnySplitGivesTheSameEvents) {
  for (const Case& c : standard_cases()) {
    for (std::size_t first = 0; first <= c.text.size(); ++first) {
      for (std::size_t second = first; second <= c.text.size(); ++second) {
        SseReader reader;
        std::vector<SseEvent> events;
        const std::string_view text = c.text;
        ASSERT_TRUE(reader.feed(text.substr(0, first), events).ok());
        ASSERT_TRUE(reader.feed(text.substr(first, second - first), events).ok());
        ASSERT_TRUE(reader.feed(text.substr(second), events).ok());
        ASSERT_EQ(events, c.events) << c.name << " cut at " << first << " and " << second;
      }
    }
  }
}

TEST(SseReader, RemembersTheRetryTime) {
  SseReader reader;
  std::vector<SseEvent> events;
  ASSERT_TRUE(
      reader.feed("retry: 1500\nretry: 12x\nretry: -3\nretry: 99999999999999\n", events).ok());
  EXPECT_EQ(reader.retry(), std::chrono::milliseconds(1500));
}

TEST(SseReader, RefusesALineOrEventPastItsLimit) {
  const SseLimits limits{.max_line_bytes = 16, .max_event_bytes = 20};
  std::vector<SseEvent> events;
  SseReader long_line(limits);
  ASSERT_TRUE(long_line.feed("data: 0123456789", events).ok());
  const Status too_long = long_line.feed("x", events);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::TooLarge);
  EXPECT_NE(too_long.error().message.find("16"), std::string::npos);
  EXPECT_FALSE(long_line.feed("\n\ndata: a\n\n", events).ok())
      << "a failed reader must stay failed";

  SseReader long_event(limits);
  EXPECT_TRUE(long_event.feed("data: 012345678\n", events).ok());
  EXPECT_TRUE(long_event.feed("data: 01234567\n", events).ok());
  EXPECT_FALSE(long_event.feed("data: 012\n", events).ok());
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace llorch::http
