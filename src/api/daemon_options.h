// How our daemons read their command lines: flags, behind them the environment and the user's file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/daemon.h"
#include "api/tls_door.h"
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

// Prints it where it belongs. The exit code: kExitFailure, with a word on stderr, where stdout does
// not take it.
int end_command(std::string_view program, const CommandEnd& end);

// Fills in what `app` describes. A flag wins over the environment, that over the file, that over
// the default; a wrong value is told with the place it came from.
std::optional<CommandEnd> parse_daemon_command(CLI::App& app, std::string_view program,
                                               const std::vector<std::string>& arguments,
                                               const base::SettingNames& settings,
                                               const base::Environment& environment);

// What --log-format says; where it says nothing, a terminal decides.
base::LogFormat choose_log_format(std::string_view flag, bool is_terminal);

// What a daemon with an address of its own can be told, whatever it does.
struct DaemonOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0 takes a free one
  bool any_port = false;   // another free one where that is taken
  TlsFlags tls;
  std::vector<std::string> allow_origins;
  std::string log_file;  // instead of stderr; empty: stderr
  base::LogFormat log_format = base::LogFormat::Pretty;
};
// In what its help differs from another's.
struct DaemonWords {
  std::string_view name;        // "pool"
  std::string_view secret;      // what others need: "token", "key"
  std::string_view any_origin;  // what is said of --allow-origin '*'; may be empty
};
// --help, --version, the options above; `log_format` is for choose_log_format().
void describe_daemon_flags(CLI::App& app, const DaemonWords& words, DaemonOptions& options,
                           std::string& log_format);

// Its home, with the log going where it should.
Result<base::Home> open_daemon(const DaemonOptions& options, const base::Environment& environment);

template <class Options>
struct ParsedDaemon : CommandEnd {
  std::optional<Options> options;  // none: print `text` and exit
};

// From a parsed command line to the daemon at work: says why it does not start, finds the home and
// opens the log; then `run(options, home)`, whose exit code this returns.
template <class Options, class Run>
int run_daemon(std::string_view program, const ParsedDaemon<Options>& command,
               const base::Environment& environment, const Run& run) {
  if (!command.options) return end_command(program, command);
  const Result<base::Home> home = open_daemon(*command.options, environment);
  if (!home.ok()) return report_failure(program, home.error());
  return run(*command.options, *home);
}

}  // namespace llorch::api
