// What a program is told besides its flags: environment variables, and its section of the user's
// file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/result.h"

namespace llorch::base {

struct SettingNames {
  std::string_view section;                 // "pool": [pool] in config.toml
  std::string_view variable_prefix;         // "LLORCH_POOL_"
  std::span<const std::string_view> names;  // of flags: "max-downloads"
};

// The arguments, and behind them "--name=value" for each name that no argument gives: from
// <PREFIX>MAX_DOWNLOADS in the environment, else from the key "max-downloads" of the section in
// find_config_file's file, whose absence is fine. An empty variable counts as unset. An error names
// the file: a key that is not among the names, or one without a single value, or no TOML.
Result<std::vector<std::string>> with_settings(std::vector<std::string> arguments,
                                               const SettingNames& settings,
                                               const Environment& environment);

// Whether "--name" or "--name=value" is among the arguments.
bool has_flag(const std::vector<std::string>& arguments, std::string_view name);

}  // namespace llorch::base
