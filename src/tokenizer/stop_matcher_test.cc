#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace llorch::tokenizer {
namespace {

struct Outcome {
  std::string text, stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopMatcher::Output output = matcher.add(piece);
    outcome.text += output.text;
    if (output.is_stopped) outcome.stop = output.stop;
  }
  outcome.text += matcher.flush();
  return outcome;
}

TEST(StopMatcher, FindsAStopStringAcrossPieces) {
  EXPECT_EQ(run({"\nUser:"}, {"Hello", "\nUs", "er", ": hi"}), (Outcome{"Hello", "\nUser:"}));
}

TEST(StopMatcher, GivesTheSameForEveryWayToCutTheText) {
  const std::string text = "ab aab aaab stop aaaab";
  const std::vector<std::string> stops = {"aaaab", "top a", "xyz"};
  const Outcome whole = run(stops, {text});
  EXPECT_EQ(whole, (Outcome{"ab aab aaab s", "top a"}));
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(run(stops, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole);
    }
  }
}

TEST(StopMatcher, ReleasesTextAsSoonAsItCannotStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.add("abcE").text, "abc");
  EXPECT_EQ(matcher.add("N").text, "");
  EXPECT_EQ(matcher.add("E").text, "EN");
  EXPECT_EQ(matcher.flush(), "E");
}

TEST(StopMatcher, ReturnsToAShorterStartOfTheStopString) {
  EXPECT_EQ(run({"aab"}, {"aaa", "ab", "c"}), (Outcome{"aa", "aab"}));
}

TEST(StopMatcher, IgnoresWhatComesAfterAStop) {
  StopMatcher matcher({"."});
  EXPECT_TRUE(matcher.add("a.b").is_stopped);
  EXPECT_EQ(matcher.add("c").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, PrefersTheLongerOfTwoThatEndTogether) {
  EXPECT_EQ(run({"b", "ab"}, {"xab"}), (Outcome{"x", "ab"}));
}

TEST(StopMatcher, LetsEverythingPassWithoutStopStrings) {
  EXPECT_EQ(run({}, {"a", "b"}), (Outcome{"ab", ""}));
  EXPECT_EQ(run({""}, {"a", "b"}), (Outcome{"ab", ""}));
}

}  // namespace
}  // namespace llorch::tokenizer
