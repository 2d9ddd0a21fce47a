#include "cli/start_daemon.h"

#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

TEST(LastWords, AreThoseOfTheLastWholeLine) {
  EXPECT_EQ(last_words("", false), "it said nothing");
  EXPECT_EQ(last_words("\n\n", false), "it said nothing");
  EXPECT_EQ(last_words("", true),
            "it could not say why, the disk of its log is full: make room there");
  EXPECT_EQ(last_words("orchestratord: the port is taken\n", true),
            "orchestratord: the port is taken");
  const std::string first = R"({"time":"t","level":"error","message":"no room"})"
                            "\n";
  EXPECT_EQ(last_words(first, false), "no room");
  EXPECT_EQ(last_words(first + R"({"level":"error","message":"not stored","why":"disk"})", false),
            "not stored: disk");
}

TEST(LastWords, ALineWithoutItsEndIsNotShown) {
  const std::string cut = R"({"time":"2026-11-18T10:00:00Z","level":"inf)";
  EXPECT_EQ(last_words(cut, false), "its log ends in the middle of a line: the disk may be full");
  const std::string said = last_words("{\"message\":\"listening\"}\n" + cut, false);
  EXPECT_EQ(said, "listening (its log ends in the middle of the next line: the disk may be full)");
}

}  // namespace
}  // namespace llorch::cli
