#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

namespace llorch::base {
namespace {

using ::testing::HasSubstr, ::testing::MatchesRegex, ::testing::Not;

// What `body` logs under `options`; the defaults are back afterwards.
template <class Body>
std::string logged(const LogOptions& options, Body body) {
  configure_log(options);
  testing::internal::CaptureStderr();
  body();
  configure_log({});
  return testing::internal::GetCapturedStderr();
}

constexpr LogOptions kJson{.format = LogFormat::Json, .level = LogLevel::Debug};

TEST(Logger, WritesOneJsonObjectPerLine) {
  const Logger log("http");
  const std::string text = logged(kJson, [&log] {
    log.info("listening", {{"host", "::1"}, {"port", 8080}, {"secure", false}, {"load", 0.5}});
  });
  EXPECT_THAT(text,
              MatchesRegex("\\{\"ts\":\"[0-9-]+T[0-9:.]+Z\",\"level\":\"info\",\"module\":\"http\","
                           "\"message\":\"listening\",\"host\":\"::1\",\"port\":8080,"
                           "\"secure\":false,\"load\":0.5\\}\n"));
}

TEST(Logger, TextFromOutsideCannotBreakTheLineOrTheObject) {
  const Logger log("m");
  const auto body = [&log] {
    log.warn("a\"b\\c\nd\x01", {{"broken", "\xff\xC0\xAF\xED\xA0\x80 caf\xC3\xA9"},
                                {"inf", std::numeric_limits<double>::infinity()}});
  };
  const std::string json = logged(kJson, body);
  EXPECT_THAT(json, HasSubstr(R"("message":"a\"b\\c\nd\u0001")"));
  EXPECT_THAT(json, HasSubstr("caf\xC3\xA9"));
  EXPECT_THAT(json, Not(HasSubstr("\xff")));
  EXPECT_THAT(json, HasSubstr(R"("inf":"inf")"));
  const std::string pretty = logged({.format = LogFormat::Pretty, .level = LogLevel::Debug}, body);
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
  EXPECT_EQ(std::count(pretty.begin(), pretty.end(), '\n'), 1);
}

TEST(Logger, PrettyLinesNameLevelModuleAndFields) {
  const Logger log("pool");
  const std::string text = logged({}, [&log] {
    log.error("worker died", {{"pid", 7}, {"id", "w"}});
  });
  EXPECT_THAT(text, HasSubstr("error"));
  EXPECT_THAT(text, HasSubstr("pool: worker died pid=7 id=\"w\"\n"));
}

TEST(Logger, LinesBelowTheLevelAreDropped) {
  const Logger log("m");
  const auto all = [&log] {
    log.debug("d");
    log.info("i");
    log.warn("w");
    log.error("e");
  };
  const std::string text = logged({.level = LogLevel::Warn}, all);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("m: w"));
  EXPECT_EQ(logged({.level = LogLevel::Off}, all), "");
}

TEST(Logger, ThreadsDoNotMixTheirLines) {
  const Logger log("m");
  const std::string text = logged(kJson, [&log] {
    const auto work = [&log] {
      for (int i = 0; i < 200; ++i) log.info("line", {{"i", i}});
    };
    std::jthread first(work);
    std::jthread second(work);
  });
  std::size_t begin = 0;
  int lines = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(text[begin], '{');
    EXPECT_EQ(text[end - 1], '}');
    begin = end + 1;
    ++lines;
  }
  EXPECT_EQ(lines, 400);
}

}  // namespace
}  // namespace llorch::base
