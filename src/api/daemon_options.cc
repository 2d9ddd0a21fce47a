#include "api/daemon_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace llorch::api {

std::optional<CommandEnd> parse_daemon_command(CLI::App& app, std::string_view program,
                                               const std::vector<std::string>& arguments,
                                               const base::SettingNames& settings,
                                               const base::Environment& environment) {
  Result<std::vector<std::string>> all = base::with_settings(arguments, settings, environment);
  if (!all.ok())
    return CommandEnd{kExitUsage, fmt::format("{}: {}\n", program, all.error().message)};
  try {
    std::reverse(all->begin(), all->end());  // CLI11 takes them from the end
    app.parse(all.take());
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) == 0) return CommandEnd{0, out.str()};
    return CommandEnd{
        kExitUsage, fmt::format("{}: {}{}\n", program, error.what(),
                                base::tell_origin(error.what(), arguments, settings, environment))};
  }
  return std::nullopt;
}

base::LogFormat choose_log_format(std::string_view flag, bool is_terminal) {
  const bool is_json = flag.empty() ? !is_terminal : flag == "json";
  return is_json ? base::LogFormat::Json : base::LogFormat::Pretty;
}

}  // namespace llorch::api
