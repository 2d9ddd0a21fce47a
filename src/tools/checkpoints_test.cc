// llorch-checkpoints as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

test::ProgramOutcome run_program(std::vector<std::string> arguments) {
  return test::run_program(LLORCH_CHECKPOINTS, std::move(arguments));
}

TEST(LlorchCheckpoints, PrintsTheLadder) {
  const auto outcome =
      run_program({"--model", test::source_path("tests/golden/gpt2_tiny").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("12  end to end"));
  EXPECT_THAT(outcome.out, HasSubstr("all checkpoints pass"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("FAIL")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b[")));  // no colour in a pipe
  EXPECT_EQ(outcome.err, "");
}

TEST(LlorchCheckpoints, AFullDiskIsAFailure) {
  const std::string command = std::string(LLORCH_CHECKPOINTS) + " --model " +
                              test::source_path("tests/golden/gpt2_tiny").string() + " >/dev/full";
  const auto outcome = test::run_program("/bin/sh", {"-c", command});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("llorch-checkpoints: the output could not be written"));
}

TEST(LlorchCheckpoints, ClimbsEveryFamily) {
  int climbed = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/golden/families"))) {
    const auto outcome = run_program({"--model", entry.path().string()});
    EXPECT_EQ(outcome.exit_code, 0) << entry.path() << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("all checkpoints pass"));
    ++climbed;
  }
  EXPECT_GE(climbed, 8);
}

TEST(LlorchCheckpoints, SpeaksJson) {
  const auto outcome =
      run_program({"--model", test::source_path("tests/golden/gpt2_bf16").string(), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::Value parsed = json::parse(outcome.out).take();
  EXPECT_TRUE(parsed.at("passed").as_bool());
  ASSERT_EQ(parsed.at("checkpoints").as_array().size(), 12U);
  for (const json::Value& rung : parsed.at("checkpoints").as_array())
    EXPECT_TRUE(rung.at("passed").as_bool());
}

TEST(LlorchCheckpoints, SaysWhyItCannotRun) {
  const auto absent = run_program({"--model", "/nonexistent/model.gguf"});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, HasSubstr("/nonexistent/model.gguf"));
  EXPECT_EQ(absent.out, "");
  const auto device = run_program(
      {"--model", test::source_path("tests/golden/gpt2_tiny").string(), "--backend", "tpu"});
  EXPECT_EQ(device.exit_code, 1);
  EXPECT_THAT(device.err, HasSubstr("tpu"));
}

TEST(LlorchCheckpoints, UsageErrorsAreTwo) {
  EXPECT_EQ(run_program({}).exit_code, 2);
  EXPECT_EQ(run_program({"--modle", "x"}).exit_code, 2);
  const auto help = run_program({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace llorch::tools
