// How our daemons read their command lines: flags, behind them the environment and the user's file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/log.h"
#include "base/settings.h"

namespace CLI {
class App;
}

namespace llorch::api {

inline constexpr int kExitUsage = 2;

// Why a program does not start: it was asked for its usage or version (0), or something is wrong.
struct CommandEnd {
  int exit_code = 0;
  std::string text;  // usage and version for stdout, what is wrong for stderr
};

// Fills in what `app` describes. A flag wins over the environment, that over the file, that over
// the default; a wrong value is told with the place it came from.
std::optional<CommandEnd> parse_daemon_command(CLI::App& app, std::string_view program,
                                               const std::vector<std::string>& arguments,
                                               const base::SettingNames& settings,
                                               const base::Environment& environment);

// What --log-format says; where it says nothing, a terminal decides.
base::LogFormat choose_log_format(std::string_view flag, bool is_terminal);

}  // namespace llorch::api
