#include "base/home.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace llorch::base {
namespace {

Result<Home> home_of(std::map<std::string, std::string> variables) {
  return find_home([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Home, FollowsXdgBelowTheUsersFolder) {
  const Result<Home> home = home_of({{"HOME", "/home/ada"}});
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home->config_file, "/home/ada/.config/llorch/config.toml");
  EXPECT_EQ(home->catalog_file(), "/home/ada/.local/share/llorch/catalog.json");
  EXPECT_EQ(home->models(), "/home/ada/.local/share/llorch/models");
  EXPECT_EQ(home->logs(), "/home/ada/.local/state/llorch/logs");
  EXPECT_EQ(home->cache, "/home/ada/.cache/llorch");
}

TEST(Home, EachXdgFolderMayBeElsewhere) {
  const Result<Home> home = home_of({{"HOME", "/home/ada"},
                                     {"XDG_DATA_HOME", "/big"},
                                     {"XDG_STATE_HOME", "relative/is/ignored"}});
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home->data, "/big/llorch");
  EXPECT_EQ(home->state, "/home/ada/.local/state/llorch");
}

TEST(Home, OneFolderMovesEverything) {
  const Result<Home> home =
      home_of({{"HOME", "/home/ada"}, {"XDG_DATA_HOME", "/big"}, {"LLORCH_HOME", "/srv/llorch/"}});
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home->config_file, "/srv/llorch/config.toml");
  EXPECT_EQ(home->models(), "/srv/llorch/models");
  EXPECT_EQ(home->logs(), "/srv/llorch/logs");
  EXPECT_EQ(home->cache, "/srv/llorch/cache");
}

TEST(Home, TheConfigurationFileMayBeNamed) {
  const Result<Home> home = home_of({{"LLORCH_HOME", "/srv"}, {"LLORCH_CONFIG", "/etc/pool.toml"}});
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home->config_file, "/etc/pool.toml");
}

TEST(Home, NowhereIsAnErrorThatNamesTheVariable) {
  const Result<Home> home = home_of({});
  ASSERT_FALSE(home.ok());
  EXPECT_NE(home.error().message.find("LLORCH_HOME"), std::string::npos);
}

}  // namespace
}  // namespace llorch::base
