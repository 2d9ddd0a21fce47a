// Where a user's files live: the XDG folders, or one folder for everything. Asks the environment it
// is handed and touches no file.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"

namespace llorch::base {

// The value of an environment variable, null when unset: programs pass std::getenv.
using Environment = std::function<const char*(const char*)>;

// Absolute paths; whether anything is there is not asked.
struct Home {
  std::filesystem::path config_file;  // config.toml
  std::filesystem::path data;         // models/, chunks/, catalog.json, llorch.db
  std::filesystem::path state;        // logs/, workers/
  std::filesystem::path cache;

  std::filesystem::path catalog_file() const { return data / "catalog.json"; }
  std::filesystem::path models() const { return data / "models"; }
  std::filesystem::path chunks() const { return data / "chunks"; }
  std::filesystem::path logs() const { return state / "logs"; }
  std::filesystem::path workers() const { return state / "workers"; }
};

// $LLORCH_HOME holds all four (config.toml, itself, itself, cache/); without it each is the XDG
// folder of its kind with "llorch" behind it, by default below $HOME. $LLORCH_CONFIG names the
// configuration file alone. NotFound when neither LLORCH_HOME nor HOME says anything.
Result<Home> find_home(const Environment& environment);

// The configuration file alone, for programs that need nothing else; empty when nothing says where
// it would be.
std::filesystem::path find_config_file(const Environment& environment);

}  // namespace llorch::base
