#include "cli/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/run_program.h"

namespace llorch::cli {
namespace {

using ::testing::HasSubstr, ::testing::Not;

TEST(Manual, HasEveryCommandAndNoHiddenOne) {
  CLI::App app("Does things.", "program");
  CLI::App* command = app.add_subcommand("make", "makes one");
  std::string value;
  command->add_option("-o,--out", value, "where to, e.g. a\\b")->type_name("FILE");
  bool flag = false;
  command->add_flag("--fast", flag, ".quickly");
  command->footer("Examples:\n  program make\n.x");
  command->add_subcommand("below", "deeper");
  app.add_subcommand("secret", "hidden")->group("");
  const std::string page = manual_page(app);
  EXPECT_THAT(page, HasSubstr(".TH PROGRAM 1"));
  EXPECT_THAT(page, HasSubstr(".SS \"program make\"\nmakes one\n"));
  EXPECT_THAT(page,
              HasSubstr("\\fB\\-o\\fR, \\fB\\-\\-out\\fR \\fIFILE\\fR\nwhere to, e.g. a\\eb"));
  EXPECT_THAT(page, HasSubstr(".SS \"program make below\""));
  EXPECT_THAT(page, HasSubstr("\\&.quickly"));
  EXPECT_THAT(page, HasSubstr("\n\\&.x\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  const json::Object table = command_table(app);
  ASSERT_EQ(table.at("commands").get_array().size(), 1U);
  const json::Object& make = table.at("commands").get_array()[0].get_object();
  EXPECT_EQ(make.at("name"), "make");
  const json::Array& options = make.at("options").get_array();
  EXPECT_EQ(options[1].at("names"), (json::Array{"-o", "--out"}));
  EXPECT_EQ(options[1].at("value"), true);
  EXPECT_EQ(options[2].at("value"), false);
}

TEST(Manual, IsThereForTheProgramWhateverTheConfiguration) {
  const test::ProgramOutcome page =
      test::run_program(LLORCH, {"manual"}, {"LLORCH_CONFIG=/nonexistent/config.toml"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  for (const char* command : {"llorch run", "llorch jobs submit", "llorch matrix", "llorch doctor"})
    EXPECT_THAT(page.out, HasSubstr(std::string(".SS \"") + command + "\""));
  const test::ProgramOutcome table = test::run_program(LLORCH, {"manual", "--json"});
  ASSERT_TRUE(json::parse(table.out).ok()) << table.out;
  EXPECT_THAT(test::run_program(LLORCH, {"--help"}).out, Not(HasSubstr("manual")));
}

}  // namespace
}  // namespace llorch::cli
