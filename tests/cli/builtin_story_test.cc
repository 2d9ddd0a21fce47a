// The whole way with the real worker and the model that is part of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "worker/test_model.h"

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

// A model made on the spot, with a chat template: its ids are nonsense, but the template's tokens
// are in the prompt, which the worker counts.
TEST(ChatModel, GetsItsTemplateUnlessTheTextGoesAsItIs) {
  const test::TempDir folder;
  test::write_test_model(folder / "chat");
  const auto prompt_tokens = [&](std::vector<std::string> more) -> std::int64_t {
    std::vector<std::string> arguments = {"run", "--json", "-n",
                                          "2",   "-m",     (folder / "chat").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::ProgramOutcome outcome = test::run_program(LLORCH, arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Result<json::Value> answer = json::parse(outcome.out);
    return answer.ok() ? answer->at("prompt_tokens").as_int64() : 0;
  };
  const std::int64_t raw = prompt_tokens({"--raw", "Hello"});
  const std::int64_t chat = prompt_tokens({"Hello"});
  EXPECT_GT(raw, 0);
  EXPECT_GT(chat, raw + 5) << "<|im_start|>user … <|im_end|> and the assistant's beginning";
  EXPECT_GT(prompt_tokens({"--system", "Be brief.", "Hello"}), chat + 5);
}

TEST(ChatModel, SystemTextNeedsATemplate) {
  const test::ProgramOutcome outcome = test::run_program(LLORCH, {"run", "--system", "x", "Once"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("has none"), std::string::npos) << outcome.err;
}

TEST(ChatModel, KnowsTheCapitalOfFrance) {
  const auto file = test::data_path("weights/minimind2-small/minimind2-small-Q4_K_M.gguf");
  if (!file) GTEST_SKIP() << "no minimind2-small";
  const test::TempDir home;
  ::setenv("LLORCH_HOME", home.path().c_str(), 1);
  const test::ProgramOutcome registered =
      test::run_program(LLORCH_POOL, {"models", "register", "minimind2", "--path", file->string()});
  ASSERT_EQ(registered.exit_code, 0) << registered.err;
  const test::ProgramOutcome outcome = test::run_program(
      LLORCH, {"run", "-m", "minimind2", "--temp", "0", "What is the capital of France?"});
  const test::ProgramOutcome unknown = test::run_program(LLORCH, {"run", "-m", "minimind", "x"});
  ::unsetenv("LLORCH_HOME");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Paris"), std::string::npos) << outcome.out;
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("minimind2"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace llorch::cli
