#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "support/test_paths.h"

namespace llorch::base {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

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
  EXPECT_THAT(*read(), ElementsAre("--host=::1", "--max-downloads=5"));
  variables_["LLORCH_POOL_MAX_DOWNLOADS"] = "6";
  EXPECT_THAT(*read(), ElementsAre("--max-downloads=6", "--host=::1"));
  EXPECT_THAT(*read({"--max-downloads", "7"}), ElementsAre("--max-downloads", "7", "--host=::1"));
  EXPECT_THAT(*read({"--max-downloads=7", "--host=h"}),
              ElementsAre("--max-downloads=7", "--host=h"));
  variables_["LLORCH_POOL_MAX_DOWNLOADS"] = "";
  EXPECT_THAT(*read(), ElementsAre("--host=::1", "--max-downloads=5"));
}

TEST_F(Settings, KeysTakeEitherDash) {
  write("[pool]\nmax_downloads = 5\n");
  EXPECT_THAT(*read(), ElementsAre("--max-downloads=5"));
  write("[pool]\nmax_downloads = 5\nmax-downloads = 6\n");
  EXPECT_THAT(read().error().message, HasSubstr("twice"));
}

TEST_F(Settings, ValuesAreWhatTheFlagWouldGet) {
  write("[pool]\nhost = 'a \"b\"'\nmax-downloads = true\n");
  EXPECT_THAT(*read(), ElementsAre("--host=a \"b\"", "--max-downloads=true"));
}

// Each of these started with defaults once, without the token that the file named.
struct BrokenConfig {
  const char* text;
  const char* line;
  const char* says;
};

TEST_F(Settings, ABrokenFileIsAnErrorWithItsPlace) {
  const std::vector<BrokenConfig> all = {
      {"[pool\nhost = \"h\"\n", "line 1", "not TOML"},
      {"\n[poool]\nhost = \"h\"\n", "line 2", "[poool]"},
      {"\n[poool]\nhost = \"h\"\n", "line 2", "did you mean pool?"},
      {"host = \"h\"\n", "line 1", "outside of any section"},
      {"# ours\n[pool]\nmax-download = 5\n", "line 3", "did you mean max-downloads?"},
      {"[pool]\nhost = [\"a\", \"b\"]\n", "line 2", "a list"},
      {"[pool.deeper]\nhost = 1\n", "line 1", "no key"},
      {"[pool]\nhost = 2026-01-01\n", "line 2", "a date"},
      {"[pool]\nhost = h\n", "line 2", "not TOML"},
      {"[pool]\nhost\n", "line 2", "not TOML"},
      {"[pool]\nhost = \"h\"\nhost = \"i\"\n", "line 3", "not TOML"},
      {"[pool]\nhost = \"\xff\"\n", "line 2", "not TOML"},
      {"pool = 5\n", "line 1", "must be a section"},
      {"[worker]\nhost = \"h\"\n[pol]\n", "line 3", "[pol]"},
  };
  for (const BrokenConfig& broken : all) {
    write(broken.text);
    const auto wrong = read();
    ASSERT_FALSE(wrong.ok()) << broken.text;
    EXPECT_EQ(wrong.error().code, ErrorCode::InvalidArgument);
    EXPECT_THAT(wrong.error().message,
                AllOf(HasSubstr("config.toml"), HasSubstr(broken.line), HasSubstr(broken.says)));
  }
}

TEST_F(Settings, WhatIsNoFileIsAnError) {
  std::filesystem::create_directory(folder_ / "config.toml");
  EXPECT_THAT(read().error().message, AllOf(HasSubstr("config.toml"), HasSubstr("a folder")));
  variables_["LLORCH_CONFIG"] = (folder_ / "none.toml").string();
  EXPECT_THAT(read().error().message, AllOf(HasSubstr("none.toml"), HasSubstr("LLORCH_CONFIG")));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  variables_["LLORCH_CONFIG"] = (folder_ / "pipe").string();
  EXPECT_FALSE(read().ok()) << "and it must not wait for a writer";
  variables_["LLORCH_CONFIG"] = "/dev/null";
  EXPECT_TRUE(read().ok()) << "none is wanted";
}

TEST_F(Settings, OtherSectionsMayHoldAnything) {
  write("[orchestrator]\nanything = [1, 2]\n[worker]\nctx = 5\n");
  EXPECT_THAT(*read(), ElementsAre());
}

TEST_F(Settings, ProgramsWithoutASectionSeeABrokenFileToo) {
  const auto environment = [this](const char* name) -> const char* {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second.c_str();
  };
  EXPECT_TRUE(check_config(environment).ok());
  write("[pool]\nhost = \"h\"\n");
  EXPECT_TRUE(check_config(environment).ok());
  write("[pool\n");
  EXPECT_FALSE(check_config(environment).ok());
}

TEST_F(Settings, TheFileMayBeNamedWithoutAHome) {
  write("[pool]\nhost = \"h\"\n");
  const std::string file = (folder_ / "config.toml").string();
  variables_ = {{"LLORCH_CONFIG", file}};
  EXPECT_THAT(*read(), ElementsAre("--host=h"));
}

}  // namespace
}  // namespace llorch::base
