// Why this machine's pool does not start, or cannot be used: told at once, in its own words, by
// every program that wants it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "fleet_cli/fleet_home.h"
#include "support/eventually.h"
#include "support/run_program.h"

namespace llorch {
namespace {

namespace fs = std::filesystem;
using test::content_of, test::eventually, test::FleetHome, test::ProgramOutcome;
using ::testing::HasSubstr;

constexpr const char* kOdd = "[pool] has no key \"odd\"";

// A line that no pool manager takes, of a section that only it reads.
void break_config(const FleetHome& home) {
  std::ofstream(home.path() / "config.toml")
      << "[orchestrator]\nport = 0\n[worker]\nthreads = 1\n[pool]\nport = 0\nodd = 1\n";
}
void mend_config(const FleetHome& home) {
  std::ofstream(home.path() / "config.toml")
      << "[orchestrator]\nport = 0\n[worker]\nthreads = 1\n[pool]\nport = 0\n";
}

ProgramOutcome llorch_pool(const FleetHome& home, std::vector<std::string> words) {
  return test::run_program((fs::path(LLORCH).parent_path() / "llorch-pool").string(),
                           std::move(words), home.environment());
}

std::string reason_of_local(const FleetHome& home) {
  const json::Value hosts = home.json({"hosts"});
  const json::Value* reason = hosts.at("hosts").at(0).as_object().if_contains("reason");
  return reason != nullptr ? std::string(reason->as_string()) : std::string();
}

TEST(FleetStart, APoolThatDoesNotTakeItsSettingsSaysSo) {
  const FleetHome home;
  break_config(home);
  const auto began = std::chrono::steady_clock::now();
  const ProgramOutcome up = home.llorch({"up"});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_THAT(up.err, HasSubstr("the pool manager did not start: pool-managerd: "));
  EXPECT_THAT(up.err, HasSubstr(kOdd));
  const std::vector<std::vector<std::string>> commands = {
      {"start"}, {"worker", "spawn", "cpu", "--model", "builtin"}};
  for (const std::vector<std::string>& words : commands) {
    const ProgramOutcome start = llorch_pool(home, words);
    EXPECT_EQ(start.exit_code, 1) << words[0];
    EXPECT_THAT(start.err, HasSubstr(kOdd)) << words[0];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20)) << "at once";
}

TEST(FleetStart, TheOrchestratorTellsWhyItsPoolDoesNotStart) {
  const FleetHome home;
  ASSERT_EQ(home.llorch({"up"}).exit_code, 0);
  break_config(home);
  std::ifstream file(home.path() / "pool.json");
  const json::Value pool = *json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_EQ(::kill(static_cast<pid_t>(pool.at("pid").as_int64()), SIGKILL), 0);
  ASSERT_TRUE(eventually([&home] { return reason_of_local(home).find(kOdd) != std::string::npos; }))
      << reason_of_local(home);
  EXPECT_THAT(content_of(home.path() / "logs/orchestrator.log"), HasSubstr("has no key"));
  const ProgramOutcome broken = home.llorch({"up"});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr(kOdd));
  mend_config(home);
  const ProgramOutcome mended = home.llorch({"up"});
  EXPECT_EQ(mended.exit_code, 0) << mended.err;
  EXPECT_EQ(home.json({"hosts"}).at("hosts").at(0).at("state"), "connected")
      << "`up` waits until it is used";
}

TEST(FleetStart, ACatalogThatCannotBeReadIsNamed) {
  const FleetHome home;
  std::ofstream(home.path() / "catalog.json") << "{ odd";
  const ProgramOutcome up = home.llorch({"up"});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_THAT(up.err, HasSubstr("the orchestrator cannot use this host's pool: "));
  EXPECT_THAT(up.err, HasSubstr((home.path() / "catalog.json").string() + " cannot be used"));
  EXPECT_THAT(reason_of_local(home), HasSubstr("catalog.json cannot be used"));
  fs::remove(home.path() / "catalog.json");
  const ProgramOutcome mended = home.llorch({"up"});
  EXPECT_EQ(mended.exit_code, 0) << mended.err;
}

}  // namespace
}  // namespace llorch
