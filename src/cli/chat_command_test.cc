// llorch chat as a person uses it, at a terminal of the test's own and through a pipe, against a
// worker that computes nothing (tests/fake_worker).
#include "cli/chat_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/run_program.h"
#include "support/terminal_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class TerminalChat : public test::TerminalProgram {
 public:
  explicit TerminalChat(const std::string& model)
      : TerminalProgram(LLORCH, {"chat", "--worker", LLORCH_FAKE_WORKER, "-m", model}) {}
};

TEST(TerminalChat, AnswersAndEndsWithCtrlD) {
  TerminalChat chat("ok,chat");
  ASSERT_TRUE(chat.shows(">>> ")) << chat.seen();
  chat.type("Hello\r");
  EXPECT_TRUE(chat.shows(", there was a café.")) << chat.seen();
  EXPECT_TRUE(chat.shows(">>> "));
  chat.type("\x04");
  EXPECT_EQ(chat.wait(), 0) << chat.seen();
}

TEST(TerminalChat, CtrlCStopsTheAnswerAndNotTheProgram) {
  TerminalChat chat("endless,chat");
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("Hello\r");
  ASSERT_TRUE(chat.shows("on and on and"));
  chat.type("\x03");
  EXPECT_TRUE(chat.shows("(stopped)")) << chat.seen();
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("Again\r");
  ASSERT_TRUE(chat.shows("on and on and")) << "it goes on answering";
  chat.type("\x03");
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("half a line\x03");
  EXPECT_TRUE(chat.shows("Ctrl-C again ends")) << chat.seen();
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("\x03");
  EXPECT_EQ(chat.wait(), 130) << chat.seen();
}

TEST(TerminalChat, APastedTextIsOneMessage) {
  TerminalChat chat("echo,chat");
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("\x1b[200~first\rsecond \x1b[31m\xc3\xa9\x1b[201~\r");
  EXPECT_TRUE(chat.shows("first\\nsecond [31m\xc3\xa9\"")) << chat.seen();
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("one\\\r");
  ASSERT_TRUE(chat.shows("... "));
  chat.type("two\r");
  EXPECT_TRUE(chat.shows("one\\ntwo\"")) << chat.seen();
}

TEST(TerminalChat, LinesCanBeEditedAndCalledBack) {
  TerminalChat chat("echo,chat");
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("cafx\x7f\xc3\xa9\x01le \r");  // a mistake, then the beginning of the line
  EXPECT_TRUE(chat.shows("\"content\":\"le caf\xc3\xa9\"")) << chat.seen();
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("/clear\r");
  ASSERT_TRUE(chat.shows("A new conversation."));
  ASSERT_TRUE(chat.shows(">>> "));
  chat.type("\x1b[A\x1b[A\r");  // up, over the command
  EXPECT_TRUE(chat.shows("\"content\":\"le caf\xc3\xa9\"")) << chat.seen();
}

test::ProgramOutcome pipe_chat(const std::string& model, const std::string& input,
                               const std::string& flags = "") {
  const std::string command = std::string("printf '") + input + "' | " + LLORCH +
                              " chat --worker " + LLORCH_FAKE_WORKER + " -m " + model + " " + flags;
  return test::run_program("/bin/sh", {"-c", command});
}

TEST(PipedChat, ThereAreAnswersAndNothingElse) {
  const test::ProgramOutcome outcome = pipe_chat("ok,chat", "Hello\\nAgain");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, ", there was a café.\n, there was a café.\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(PipedChat, TheModelSeesTheWholeConversation) {
  const test::ProgramOutcome outcome = pipe_chat(
      "echo,chat", R"(/set temperature 0\n"""\nHello\nyou\n"""\n/regenerate\n/clear\nNew\n)",
      "--system 'Be brief.'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', at);
    lines.push_back(outcome.out.substr(at, end - at));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 3U) << outcome.out;
  const std::string first = R"([{"role":"system","content":"Be brief."},{"role":"user","content":)";
  EXPECT_THAT(lines[0],
              AllOf(HasSubstr(first + R"("Hello\nyou"}])"),
                    ::testing::ContainsRegex("\"temperature\":0E0|\"temperature\":0[,.]")));
  EXPECT_THAT(lines[1], HasSubstr(first + R"("Hello\nyou"}])"));
  EXPECT_THAT(lines[2], HasSubstr(first + R"("New"}])"));
}

TEST(PipedChat, AFullContextOffersANewConversation) {
  const test::ProgramOutcome outcome = pipe_chat("overflow,chat", "Hello\\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no longer fits"), HasSubstr("/clear")));
}

TEST(PipedChat, AModelWithoutATemplateCannotChat) {
  const test::ProgramOutcome outcome = pipe_chat("ok", "Hello\\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no chat template"), HasSubstr("llorch run")));
}

TEST(PipedChat, AWorkerThatDiesEndsIt) {
  const test::ProgramOutcome outcome = pipe_chat("crash,chat", "Hello\\nAgain\\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("out of ideas"));
}

TEST(PipedChat, JsonIsAnObjectForEachAnswer) {
  const test::ProgramOutcome outcome = pipe_chat("think,chat", "Hello\\n", "--json --seed 3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(R"("text":", there was a café.")"),
                                 HasSubstr(R"("reasoning":"hm")"), HasSubstr(R"("seed":3)")));
}

}  // namespace
}  // namespace llorch::cli
