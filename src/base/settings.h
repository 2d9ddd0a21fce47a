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
// <PREFIX>MAX_DOWNLOADS in the environment, else from the key "max-downloads" (or "max_downloads")
// of the section in find_config_file's file. An empty variable counts as unset. The file may be
// absent unless LLORCH_CONFIG names it; anything else is an error that names the file, the line,
// what was found and what was expected: no TOML, a section that no program has, a key outside of
// sections or not among the names, no single value, a folder, a file that cannot be read.
Result<std::vector<std::string>> with_settings(std::vector<std::string> arguments,
                                               const SettingNames& settings,
                                               const Environment& environment);

// For a message about the value of a flag that with_settings added: where it came from ("; …/
// config.toml, line 3, says so"). Nothing where the arguments themselves have it.
std::string tell_origin(std::string_view message, const std::vector<std::string>& arguments,
                        const SettingNames& settings, const Environment& environment);

// Whether the configuration file, if there is one, could be read by the programs that have a
// section in it. For programs that have none.
Status check_config(const Environment& environment);

// Whether "--name" or "--name=value" is among the arguments.
bool has_flag(const std::vector<std::string>& arguments, std::string_view name);

}  // namespace llorch::base
