// The official OpenAI SDK (npm package "openai") as a client of the real program.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/run_program.h"
#include "support/test_paths.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

TEST(OpenAiSdk, FindsWhatItExpects) {
  const std::filesystem::path folder = source_path("tests/openai_sdk/client.mjs").parent_path();
  const ProgramOutcome node = run_program("/usr/bin/env", {"node", "--version"});
  if (node.exit_code != 0 || !std::filesystem::exists(folder / "node_modules" / "openai")) {
    std::fprintf(
        stderr,
        "SKIPPED: node or the package openai is missing; scripts/setup.sh test installs both\n");
    GTEST_SKIP() << "node or " << folder / "node_modules/openai"
                 << " is missing";
  }
  WorkerFixture worker(kSlow);  // an answer must still be under way when it is aborted
  ASSERT_TRUE(worker.wait_until_healthy());
  const ProgramOutcome outcome =
      run_program("/usr/bin/env", {"node", (folder / "client.mjs").string(), worker.url("")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  std::printf("%s", outcome.out.c_str());
  EXPECT_TRUE(worker.wait_until_idle());
}

}  // namespace
}  // namespace llorch::test
