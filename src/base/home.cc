#include "base/home.h"

#include <string>
#include <system_error>

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

// As it is where the working directory is gone.
fs::path make_absolute(const fs::path& path) {
  std::error_code error;
  fs::path found = fs::absolute(path, error);
  return error ? path : found;
}

std::string text_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

// XDG: a relative path in one of its variables is to be ignored. Empty: nobody says.
fs::path xdg_folder(const Environment& environment, const char* variable, const char* usual) {
  const fs::path set = text_of(environment, variable);
  if (set.is_absolute()) return set / "llorch";
  const std::string user = text_of(environment, "HOME");
  return user.empty() ? fs::path() : make_absolute(user) / usual / "llorch";
}

fs::path all_in_one(const Environment& environment) {
  const std::string folder = text_of(environment, "LLORCH_HOME");
  return folder.empty() ? fs::path() : make_absolute(folder).lexically_normal();
}

}  // namespace

fs::path find_config_file(const Environment& environment) {
  if (const std::string file = text_of(environment, "LLORCH_CONFIG"); !file.empty())
    return make_absolute(file);
  if (const fs::path folder = all_in_one(environment); !folder.empty())
    return folder / "config.toml";
  const fs::path folder = xdg_folder(environment, "XDG_CONFIG_HOME", ".config");
  return folder.empty() ? fs::path() : folder / "config.toml";
}

Result<Home> find_home(const Environment& environment) {
  Home home;
  home.config_file = find_config_file(environment);
  if (const fs::path folder = all_in_one(environment); !folder.empty()) {
    home.data = folder;
    home.state = folder;
    home.cache = folder / "cache";
    return home;
  }
  home.data = xdg_folder(environment, "XDG_DATA_HOME", ".local/share");
  home.state = xdg_folder(environment, "XDG_STATE_HOME", ".local/state");
  home.cache = xdg_folder(environment, "XDG_CACHE_HOME", ".cache");
  if (home.config_file.empty() || home.data.empty() || home.state.empty() || home.cache.empty()) {
    return Error{ErrorCode::NotFound,
                 "neither LLORCH_HOME nor HOME is set: set LLORCH_HOME to a folder for models, "
                 "catalog and logs"};
  }
  return home;
}

}  // namespace llorch::base
