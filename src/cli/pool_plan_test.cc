// llorch-pool plan as a user runs it, with the real worker and a driver of our making.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class PoolPlanTest : public testing::Test {
 protected:
  test::ProgramOutcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"LLORCH_HOME=" + (dir_ / "home").string(), LLORCH_POOL, "plan"});
    return test::run_program("/usr/bin/env", std::move(arguments));
  }

  test::TempDir dir_;
};

TEST_F(PoolPlanTest, ShowsEveryPartAndTheVerdict) {
  const test::ProgramOutcome outcome = run({"builtin", "--ctx", "512", "--slots", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"weights", "keys and values", "scratch", "runtime", "planned", "margin",
                           "free", "cpu: fits\n"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_THAT(outcome.out, Not(HasSubstr("measured"))) << "nothing was";
  EXPECT_EQ(outcome.out.find('\x1B'), std::string::npos) << "no colour in a pipe";
}

TEST_F(PoolPlanTest, PrintsOneDocumentForPrograms) {
  const test::ProgramOutcome outcome =
      run({"builtin", "--ctx", "512", "--slots", "2", "--kv", "q8_0", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Result<json::Value> value = json::parse(outcome.out);
  ASSERT_TRUE(value.ok()) << outcome.out;
  EXPECT_TRUE(value->at("fits").as_bool());
  const json::Object& plan = value->at("plans").as_array().at(0).as_object();
  EXPECT_EQ(plan.at("device").as_string(), "cpu");
  EXPECT_EQ(plan.at("need").at("context").as_int64(), 512);
  EXPECT_EQ(plan.at("need").at("slots").as_int64(), 2);
  EXPECT_EQ(plan.at("need").at("kv_type").as_string(), "q8_0");
  EXPECT_GT(plan.at("margin_bytes").as_int64(), 0);
}

TEST_F(PoolPlanTest, TakesAPathToo) {
  const std::string file = test::source_path("models/builtin/stories.gguf").string();
  const test::ProgramOutcome outcome = run({file, "--ctx", "256"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("cpu: fits"));
}

TEST_F(PoolPlanTest, SaysWhatIsNotHere) {
  test::ProgramOutcome outcome = run({"nothing-like-it"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("llorch-pool: "));
  EXPECT_THAT(outcome.err, HasSubstr("nothing-like-it"));
  outcome = run({"builtin", "--backend", "cuda"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, testing::AnyOf(HasSubstr("no worker-orcd"), HasSubstr("no GPU here")));
  outcome = run({"builtin", "--ctx", "9999999"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("own context of 1024"));
}

TEST_F(PoolPlanTest, MistakesAreUsage) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"builtin", "--kv", "q4"},
                                                    {"builtin", "--slots", "0"},
                                                    {"builtin", "--gpu", "0"},
                                                    {"builtin", "--backend", "cpu", "--gpu", "0"}})
    EXPECT_EQ(run(arguments).exit_code, 2);
  const test::ProgramOutcome help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace llorch::cli
