#include "base/home.h"

#include <string>

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Home> find_home(const Environment& environment) {
  Home home;
  const std::string all = text_of(environment, "LLORCH_HOME");
  const std::string user = text_of(environment, "HOME");
  if (!all.empty()) {
    const fs::path folder = fs::absolute(all).lexically_normal();
    home = {folder / "config.toml", folder, folder, folder / "cache"};
  } else {
    // XDG: a relative path in one of its variables is to be ignored.
    const auto folder = [&](const char* variable, const char* usual) -> fs::path {
      const fs::path set = text_of(environment, variable);
      if (set.is_absolute()) return set / "llorch";
      return user.empty() ? fs::path() : fs::absolute(user) / usual / "llorch";
    };
    home = {folder("XDG_CONFIG_HOME", ".config"), folder("XDG_DATA_HOME", ".local/share"),
            folder("XDG_STATE_HOME", ".local/state"), folder("XDG_CACHE_HOME", ".cache")};
    if (home.config_file.empty() || home.data.empty() || home.state.empty() || home.cache.empty()) {
      return Error{ErrorCode::NotFound,
                   "neither LLORCH_HOME nor HOME is set: set LLORCH_HOME to a folder for models, "
                   "catalog and logs"};
    }
    home.config_file /= "config.toml";
  }
  if (const std::string file = text_of(environment, "LLORCH_CONFIG"); !file.empty())
    home.config_file = fs::absolute(file);
  return home;
}

}  // namespace llorch::base
