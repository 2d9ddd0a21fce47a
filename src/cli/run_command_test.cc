// llorch run as a user would use it, against a worker that computes nothing (tests/fake_worker).
#include "cli/run_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "support/eventually.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using test::eventually, test::ProgramOutcome;
using ::testing::AllOf, ::testing::HasSubstr, ::testing::StartsWith;

class RunCommand : public ::testing::Test {
 protected:
  RunCommand() { ::setenv("FAKE_WORKER_PID_FILE", pid_file().c_str(), 1); }

  std::string pid_file() const { return (folder_ / "pid").string(); }

  static std::vector<std::string> arguments(const std::string& model,
                                            std::vector<std::string> more) {
    std::vector<std::string> all = {"run", "--worker", LLORCH_FAKE_WORKER, "-m", model};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static ProgramOutcome run(const std::string& model, std::vector<std::string> more) {
    return test::run_program(LLORCH, arguments(model, std::move(more)));
  }

  static json::Object printed_object(const ProgramOutcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Result<json::Value> parsed = json::parse(outcome.out);
    const bool is_object = parsed.ok() && parsed->is_object();
    EXPECT_TRUE(is_object) << outcome.out;
    return is_object ? parsed->as_object() : json::Object();
  }

  // The worker's process id, once it has started; 0 before.
  int worker_pid() const {
    const Result<std::string> text = base::read_text_file(pid_file(), 32);
    int pid = 0;
    if (text.ok()) std::from_chars(text->data(), text->data() + text->size(), pid);
    return pid;
  }

  // Whether the worker is gone for good: no process, not even a zombie of ours.
  bool worker_is_gone() const { return worker_pid() > 0 && ::kill(worker_pid(), 0) != 0; }

  test::TempDir folder_;
};

TEST_F(RunCommand, StreamsTheTextAndLeavesNothing) {
  const ProgramOutcome outcome = run("ok", {"Once", "upon", "a", "time"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, ", there was a café.\n");
  EXPECT_EQ(outcome.err, "") << "no terminal, no numbers";
  EXPECT_TRUE(worker_is_gone());
}

TEST_F(RunCommand, VerboseSaysHowFast) {
  const ProgramOutcome outcome = run("ok", {"-v", "Once"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("3 tokens, 100.0 tokens/s"), HasSubstr("seed 42")));
}

TEST_F(RunCommand, SendsWhatTheFlagsSay) {
  const ProgramOutcome outcome =
      run("echo", {"-n", "7", "--temp", "0.5", "--top-p", "0.25", "--top-k", "5", "--min-p",
                   "0.125", "--repetition-penalty", "1.5", "--seed", "18446744073709551615",
                   "--stop", "a", "--stop", "b", "Hello \"there\""});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Result<json::Value> sent = json::parse(outcome.out);
  ASSERT_TRUE(sent.ok()) << outcome.out;
  const json::Object& body = sent->as_object();
  EXPECT_EQ(body.at("prompt"), "Hello \"there\"");
  EXPECT_EQ(body.at("max_tokens"), 7);
  EXPECT_EQ(body.at("temperature"), 0.5);
  EXPECT_EQ(body.at("top_p"), 0.25);
  EXPECT_EQ(body.at("top_k"), 5);
  EXPECT_EQ(body.at("min_p"), 0.125);
  EXPECT_EQ(body.at("repetition_penalty"), 1.5);
  EXPECT_EQ(body.at("seed"), 18446744073709551615ULL);
  EXPECT_EQ(json::serialize(body.at("stop")), R"(["a","b"])");
}

TEST_F(RunCommand, JsonIsOneObject) {
  const ProgramOutcome outcome = run("ok", {"--json", "Once"});
  const json::Object answer = printed_object(outcome);
  EXPECT_EQ(answer.at("text"), ", there was a café.");
  EXPECT_EQ(answer.at("prompt"), "Once");
  EXPECT_EQ(answer.at("model"), "ok");
  EXPECT_EQ(answer.at("stop_reason"), "eos");
  EXPECT_EQ(answer.at("seed"), 42);
  EXPECT_EQ(answer.at("tokens_out"), 3);
  EXPECT_EQ(answer.at("tokens_per_second"), 100.0);
}

// A model with a template that gets none answers with its end at once, or with noise.
TEST_F(RunCommand, AChatModelIsAskedThroughItsTemplate) {
  const ProgramOutcome outcome = run("echo,chat", {"--system", "Be brief.", "--seed", "9", "--stop",
                                                   "x", "-n", "7", "--json", "Who", "are", "you?"});
  const json::Object answer = printed_object(outcome);
  EXPECT_EQ(answer.at("mode"), "chat");
  EXPECT_EQ(answer.at("system"), "Be brief.");
  EXPECT_EQ(answer.at("prompt"), "Who are you?");
  EXPECT_EQ(answer.at("stop_reason"), "stop") << "an own stop text or the model's own end";
  EXPECT_EQ(answer.at("seed"), 9);
  EXPECT_EQ(answer.at("prompt_tokens"), 4);
  EXPECT_EQ(answer.at("tokens_out"), 3);
  const Result<json::Value> sent = json::parse(std::string(answer.at("text").as_string()));
  ASSERT_TRUE(sent.ok()) << outcome.out;
  EXPECT_EQ(
      json::serialize(sent->at("messages")),
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Who are you?"}])");
  EXPECT_EQ(sent->at("max_completion_tokens"), 7);
  EXPECT_EQ(sent->at("seed"), 9);
  EXPECT_FALSE(sent->as_object().contains("top_k")) << "what is off is not sent";
}

TEST_F(RunCommand, RawLeavesTheTemplateOut) {
  const ProgramOutcome outcome = run("echo,chat", {"--raw", "Hello"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(R"("prompt":"Hello")"));
  EXPECT_THAT(run("ok", {"--json", "Hello"}).out, HasSubstr(R"("mode":"raw")"))
      << "as does a model without a template";
}

TEST_F(RunCommand, ThoughtsAreNotTheAnswer) {
  EXPECT_EQ(run("think,chat", {"x"}).out, ", there was a café.\n");
  EXPECT_THAT(run("think,chat", {"--json", "x"}).out, HasSubstr(R"("reasoning":"hm")"));
}

TEST_F(RunCommand, ReadsThePromptFromAPipe) {
  const std::string command = std::string("printf 'from a pipe\\n' | ") + LLORCH +
                              " run --worker " + LLORCH_FAKE_WORKER + " -m echo";
  const ProgramOutcome outcome = test::run_program("/bin/sh", {"-c", command});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(R"("prompt":"from a pipe")"));
}

TEST_F(RunCommand, MistakesOnTheCommandLineAreCode2) {
  const std::vector<std::vector<std::string>> mistakes = {
      {},                        // standard input is empty
      {"--temp", "3", "x"},      // out of range
      {"--temp", "nan", "x"},    // no number
      {"--top-p", "-0.1", "x"},  // out of range
      {"-n", "0", "x"},          // nothing to do
      {"--unknown", "x"},        // no such flag
      {"--seed", "-1", "x"},     // and numbers that would become the largest one
      {"--seed", "18446744073709551616", "x"},
      {"--seed", "99999999999999999999999999", "x"},
      {"\xff"},  // not UTF-8
      {"--stop", "a", "--stop", "b", "--stop", "c", "--stop", "d", "--stop", "e", "x"}};
  for (const std::vector<std::string>& mistake : mistakes) {
    const ProgramOutcome outcome = run("ok", mistake);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err, "");
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(worker_pid(), 0) << "no worker was started for any of them";
}

TEST_F(RunCommand, AMissingWorkerIsExplained) {
  const ProgramOutcome outcome =
      test::run_program(LLORCH, {"run", "--worker", (folder_ / "none").string(), "x"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(StartsWith("llorch: "), HasSubstr("none cannot be started"),
                                 HasSubstr("--worker")));
}

struct Failure {
  std::string model;
  std::string says;
};

class RunCommandFailures : public RunCommand, public ::testing::WithParamInterface<Failure> {};

TEST_P(RunCommandFailures, AreExplainedAndLeaveNothing) {
  const ProgramOutcome outcome = run(GetParam().model, {"x"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(StartsWith("llorch: "), HasSubstr(GetParam().says)));
  EXPECT_TRUE(worker_is_gone());
}

INSTANTIATE_TEST_SUITE_P(
    Each, RunCommandFailures,
    ::testing::Values(
        Failure{"fail", "exited with code 1: llorch-cpud: no.gguf does not exist; name a file"},
        Failure{"liar", "the callback was refused"}, Failure{"refuse", "9 tokens, room for 8"},
        Failure{"overflow,chat", "9 tokens, the context has 8"},
        Failure{"error,chat", "the device failed"}, Failure{"cut,chat", "before the end"},
        Failure{"error", "the device failed"}, Failure{"cut", "before the end"},
        Failure{"crash", "(Aborted): fake worker: out of ideas"}),
    [](const auto& instance) {
      std::string name = instance.param.model;
      std::replace(name.begin(), name.end(), ',', '_');
      return name;
    });

TEST_F(RunCommand, CtrlCEndsEverythingAtOnce) {
  for (const char* model : {"endless", "mute"}) {
    std::filesystem::remove(pid_file());
    base::ProcessOptions options;
    options.program = LLORCH;
    options.arguments = arguments(model, {"x"});
    Result<std::unique_ptr<base::Process>> llorch = base::Process::spawn(options);
    ASSERT_TRUE(llorch.ok()) << llorch.error().message;
    const bool streams = std::string_view(model) == "endless";
    ASSERT_TRUE(eventually(
        [&] { return streams ? (*llorch)->output_tail().size() > 20 : worker_pid() > 0; }));
    ::kill((*llorch)->pid(), SIGINT);
    EXPECT_EQ((*llorch)->wait_for(std::chrono::seconds(20)), (base::ExitStatus{130, 0})) << model;
    EXPECT_TRUE(worker_is_gone()) << model;
  }
}

TEST_F(RunCommand, TheWorkerDiesWithAKilledProgram) {
  base::ProcessOptions options;
  options.program = LLORCH;
  options.arguments = arguments("endless", {"x"});
  Result<std::unique_ptr<base::Process>> llorch = base::Process::spawn(options);
  ASSERT_TRUE(llorch.ok()) << llorch.error().message;
  ASSERT_TRUE(eventually([&] { return (*llorch)->output_tail().size() > 20; }));
  ::kill((*llorch)->pid(), SIGKILL);
  EXPECT_EQ((*llorch)->wait_for(std::chrono::seconds(20)), (base::ExitStatus{0, SIGKILL}));
  // Whoever inherits the dead worker may be slow to collect it.
  EXPECT_TRUE(eventually([&] {
    std::ifstream file("/proc/" + std::to_string(worker_pid()) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    return !(file >> id >> name >> state) || state == "Z";
  }));
}

TEST_F(RunCommand, AReaderThatLeavesEndsIt) {
  const std::string command =
      std::string(LLORCH) + " run --worker " + LLORCH_FAKE_WORKER + " -m endless x | head -c 20";
  const ProgramOutcome outcome = test::run_program("/bin/sh", {"-c", command});
  EXPECT_EQ(outcome.out, "on and on and on and");
  EXPECT_TRUE(eventually([&] {
    std::ifstream file("/proc/" + std::to_string(worker_pid()) + "/stat");
    return !file || worker_is_gone();
  }));
}

TEST_F(RunCommand, HelpThatCannotBeWrittenIsAFailure) {
  const ProgramOutcome outcome =
      test::run_program("/bin/sh", {"-c", std::string(LLORCH) + " --help > /dev/full"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be written"));
}

TEST_F(RunCommand, AnUnknownWordIsNamedWithTheNearest) {
  const auto says = [](const std::vector<std::string>& words) {
    const ProgramOutcome outcome = test::run_program(LLORCH, words);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(says({"rnu", "x"}), AllOf(HasSubstr("no command \"rnu\""), HasSubstr("mean run?")));
  EXPECT_THAT(says({"run", "--tmep", "1", "x"}),
              AllOf(HasSubstr("no option \"--tmep\""), HasSubstr("--temp")));
  EXPECT_THAT(says({"zzzzzz"}), HasSubstr("llorch --help"));
}

TEST_F(RunCommand, AnArgumentThatMayNotBeEmptyOrIsTooManyIsUsage) {
  const auto says = [](const std::vector<std::string>& words) {
    const ProgramOutcome outcome = test::run_program(LLORCH, words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(says({"why", ""}), "llorch: JOB is empty\n");
  EXPECT_EQ(says({"jobs", "cancel", ""}), "llorch: JOB is empty\n");
  EXPECT_EQ(says({"keys", "revoke", ""}), "llorch: KEY is empty\n");
  EXPECT_EQ(says({"up", "anna", ""}), "llorch: HOST is empty\n");
  EXPECT_EQ(says({"why", "a", "b", "c"}), "llorch: there is no place for \"b\" \"c\" here\n");
  EXPECT_EQ(says({"jobs"}), "llorch: no command is named; `llorch jobs --help` shows them\n");
  EXPECT_THAT(says({"run", ""}), HasSubstr("the prompt is empty"));
}

TEST_F(RunCommand, ABrokenConfigurationIsNotPassedOver) {
  std::ofstream(folder_ / "config.toml") << "[poool]\n";
  ::setenv("LLORCH_CONFIG", (folder_ / "config.toml").c_str(), 1);
  const ProgramOutcome outcome = run("ok", {"x"});
  ::unsetenv("LLORCH_CONFIG");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("config.toml"), HasSubstr("[poool]")));
}

TEST_F(RunCommand, HelpShowsExamples) {
  const ProgramOutcome outcome = test::run_program(LLORCH, {"run", "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("llorch run \"Once upon a time\""));
  EXPECT_EQ(test::run_program(LLORCH, {"--version"}).exit_code, 0);
}

}  // namespace
}  // namespace llorch::cli
