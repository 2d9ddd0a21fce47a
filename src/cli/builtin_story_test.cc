// The whole way with the real worker and the model that is part of it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "support/run_program.h"

namespace llorch::cli {
namespace {

// What llama.cpp answers to the same file, always taking the most probable token.
constexpr const char* kStory =
    ", there was a little girl named Lily. She loved to play outside in the park with her friends. "
    "One day, Lily's mom told her that they were going to celebrate their birthday. Lily was so "
    "excited!\n\nWhen they";

TEST(BuiltinStory, IsWhatTheReferenceTells) {
  const test::ProgramOutcome outcome =
      test::run_program(LLORCH, {"run", "--temp", "0", "-n", "48", "Once upon a time"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, std::string(kStory) + "\n");
}

TEST(BuiltinStory, ASeedRepeatsAWholeStoryThatEnds) {
  const std::vector<std::string> arguments = {"run", "--json", "--seed", "5", "Once upon a time"};
  const test::ProgramOutcome first = test::run_program(LLORCH, arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result<json::Value> story = json::parse(first.out);
  ASSERT_TRUE(story.ok()) << first.out;
  EXPECT_EQ(story->as_object().at("stop_reason"), "eos");
  EXPECT_GT(story->as_object().at("tokens_out").as_int64(), 50);
  const Result<json::Value> again = json::parse(test::run_program(LLORCH, arguments).out);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->as_object().at("text"), story->as_object().at("text"));
}

}  // namespace
}  // namespace llorch::cli
