// The pool's commands together, with the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "pool/pool_world.h"

namespace llorch::test {
namespace {

using testing::HasSubstr;

TEST(Pool, AModelThatAWorkerRunsIsNotRemoved) {
  PoolWorld world;
  ASSERT_EQ(world.cli({"models", "download", "tale", "--ref", world.remote_ref()}).exit_code, 0);
  const ProgramOutcome spawned =
      world.cli({"worker", "spawn", "cpu", "--model", "tale", "--ctx", "128", "--slots", "1"});
  ASSERT_EQ(spawned.exit_code, 0) << spawned.err;
  const ProgramOutcome refused = world.cli({"models", "rm", "tale"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("worker stop worker-cpu-0"));
  EXPECT_TRUE(std::filesystem::exists(world.home() / "models" / "tale"));

  ASSERT_EQ(world.cli({"worker", "stop", "worker-cpu-0"}).exit_code, 0);
  const ProgramOutcome removed = world.cli({"models", "rm", "tale"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_FALSE(std::filesystem::exists(world.home() / "models" / "tale"));
  EXPECT_EQ(world.cli({"stop"}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return world.processes().empty(); }));
}

TEST(Pool, StopEndsWorkersWhoseManagerWasKilled) {
  PoolWorld world;
  const ProgramOutcome spawned =
      world.cli({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "128", "--slots", "1"});
  ASSERT_EQ(spawned.exit_code, 0) << spawned.err;
  for (const Process& process : world.processes()) {
    if (process.role == Role::Manager) ::kill(process.pid, SIGKILL);
  }
  const ProgramOutcome stopped = world.cli({"stop"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_TRUE(eventually([&] { return world.processes().empty(); }));
}

}  // namespace
}  // namespace llorch::test
