#include "api/daemon_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

namespace llorch::api {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

TEST(EndCommand, SaysWhenTheOutputIsNotTaken) {
  EXPECT_EXIT(
      {
        if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(77);
        std::_Exit(end_command("llorch-x", {0, "1.0\n"}));
      },
      ExitedWithCode(kExitFailure), "llorch-x: the output cannot be written: No space left");
}

TEST(EndCommand, GivesTheCodeOfWhatIsWrong) {
  EXPECT_EXIT(std::_Exit(end_command("llorch-x", {kExitUsage, "llorch-x: no\n"})),
              ExitedWithCode(kExitUsage), "llorch-x: no");
}

TEST(DaemonFlags, APortIsToldItsRange) {
  for (const char* port : {"99999", "-1", "x"}) {
    CLI::App app("", "llorch-x");
    DaemonOptions options;
    std::string log_format;
    describe_daemon_flags(app, {"x", "token", ""}, options, log_format);
    const auto end = parse_daemon_command(app, "llorch-x", {std::string("--port=") + port}, {},
                                          [](const char*) -> const char* { return nullptr; });
    ASSERT_TRUE(end.has_value()) << port;
    EXPECT_EQ(end->exit_code, kExitUsage);
    EXPECT_THAT(end->text, HasSubstr("65535"));
    EXPECT_THAT(end->text, HasSubstr("--port"));
  }
}

TEST(DaemonFlags, WordsThatNobodyExpectsStandInTheirOrder) {
  const auto says = [](const std::vector<std::string>& words) {
    CLI::App app("", "llorch-x");
    DaemonOptions options;
    std::string log_format;
    describe_daemon_flags(app, {"x", "token", ""}, options, log_format);
    const auto end = parse_daemon_command(app, "llorch-x", words, {},
                                          [](const char*) -> const char* { return nullptr; });
    return end ? end->text : "nothing";
  };
  EXPECT_EQ(says({"one", "two", "three"}),
            "llorch-x: there is no place for \"one\" \"two\" \"three\" here\n");
  EXPECT_THAT(says({"--prot", "80"}),
              HasSubstr("llorch-x: there is no option \"--prot\"; did you mean --port"));
}

}  // namespace
}  // namespace llorch::api
