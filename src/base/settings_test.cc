#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>

#include "support/test_paths.h"

namespace llorch::base {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Settings : public ::testing::Test {
 protected:
  static constexpr std::array<std::string_view, 2> kNames = {"max-downloads", "host"};

  Settings() { variables_["LLORCH_HOME"] = folder_.path().string(); }

  void write(std::string_view text) { std::ofstream(folder_ / "config.toml") << text; }

  Result<std::vector<std::string>> read(std::vector<std::string> arguments = {}) {
    return with_settings(std::move(arguments), {"pool", "LLORCH_POOL_", kNames},
                         [this](const char* name) -> const char* {
                           const auto found = variables_.find(name);
                           return found == variables_.end() ? nullptr : found->second.c_str();
                         });
  }

  test::TempDir folder_;
  std::map<std::string, std::string> variables_;
};

TEST_F(Settings, NothingIsAddedWhereNothingIsSaid) {
  EXPECT_THAT(*read({"--x", "y"}), ElementsAre("--x", "y"));
  variables_.clear();
  EXPECT_THAT(*read(), ElementsAre());
}

TEST_F(Settings, FlagBeforeEnvironmentBeforeFile) {
  write("[worker]\nhost = \"other\"\n\n[pool]\nmax-downloads = 5\nhost = \"::1\"\n");
  EXPECT_THAT(*read(), ElementsAre("--max-downloads=5", "--host=::1"));
  variables_["LLORCH_POOL_MAX_DOWNLOADS"] = "6";
  EXPECT_THAT(*read(), ElementsAre("--max-downloads=6", "--host=::1"));
  EXPECT_THAT(*read({"--max-downloads", "7"}), ElementsAre("--max-downloads", "7", "--host=::1"));
  EXPECT_THAT(*read({"--max-downloads=7", "--host=h"}),
              ElementsAre("--max-downloads=7", "--host=h"));
  variables_["LLORCH_POOL_MAX_DOWNLOADS"] = "";
  EXPECT_THAT(*read(), ElementsAre("--max-downloads=5", "--host=::1"));
}

TEST_F(Settings, MistakesNameTheFile) {
  for (const char* text : {"[pool]\nmax-download = 5\n", "[pool]\nhost = [\"a\", \"b\"]\n"}) {
    write(text);
    const auto wrong = read();
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_EQ(wrong.error().code, ErrorCode::InvalidArgument);
    EXPECT_THAT(wrong.error().message, AllOf(HasSubstr("config.toml"), HasSubstr("[pool]")));
  }
}

TEST_F(Settings, OtherSectionsMayHoldAnything) {
  write("[orchestrator]\nanything = [1, 2]\n[pool.deeper]\nhost = 1\n");
  EXPECT_THAT(*read(), ElementsAre());
}

TEST_F(Settings, TheFileMayBeNamedWithoutAHome) {
  write("[pool]\nhost = \"h\"\n");
  const std::string file = (folder_ / "config.toml").string();
  variables_ = {{"LLORCH_CONFIG", file}};
  EXPECT_THAT(*read(), ElementsAre("--host=h"));
}

}  // namespace
}  // namespace llorch::base
