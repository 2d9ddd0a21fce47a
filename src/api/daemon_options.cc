#include "api/daemon_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/log_file.h"
#include "base/similar_names.h"
#include "base/version.h"

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
        kExitUsage,
        fmt::format("{}: {}{}\n", program, base::tell_problem<CLI::ExtrasError>(app, error),
                    base::tell_origin(error.what(), arguments, settings, environment))};
  }
  return std::nullopt;
}

int end_command(std::string_view program, const CommandEnd& end) {
  if (end.exit_code != 0) {
    std::fputs(end.text.c_str(), stderr);
    return end.exit_code;
  }
  if (std::fputs(end.text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  const std::string reason = std::strerror(errno);
  return report_failure(
      program, {ErrorCode::Unavailable, fmt::format("the output cannot be written: {}", reason)});
}

base::LogFormat choose_log_format(std::string_view flag, bool is_terminal) {
  const bool is_json = flag.empty() ? !is_terminal : flag == "json";
  return is_json ? base::LogFormat::Json : base::LogFormat::Pretty;
}

void describe_daemon_flags(CLI::App& app, const DaemonWords& words, DaemonOptions& options,
                           std::string& log_format) {
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", std::string(base::version()), "print the version");
  app.add_option("--host", options.host,
                 fmt::format("address to listen on; any but loopback needs a {}", words.secret))
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--port", options.port, "port to listen on; 0 takes a free one")
      ->type_name("N")
      ->check(CLI::Range(0, 65'535).description(""))
      ->capture_default_str();
  app.add_flag("--any-port", options.any_port, "where that port is taken, a free one instead");
  describe_tls_flags(app, options.tls);
  app.add_option(
         "--allow-origin", options.allow_origins,
         fmt::format("web pages that may use this {}, as https://app.example; may be repeated{}",
                     words.name, words.any_origin))
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("ORIGIN");
  app.add_option("--log-file", options.log_file, "append the log to this file, not to stderr")
      ->type_name("FILE");
  app.add_option("--log-format", log_format, "default: pretty on a terminal, else json")
      ->type_name("json|pretty")
      ->check(CLI::IsMember({"json", "pretty"}).description(""));
}

Result<base::Home> open_daemon(const DaemonOptions& options, const base::Environment& environment) {
  Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) return home;
  if (Status opened = base::redirect_log(options.log_file); !opened.ok()) return opened.error();
  base::configure_log({.format = options.log_format});
  return home;
}

}  // namespace llorch::api
