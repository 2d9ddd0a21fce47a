// What every tool's command line does alike. Private to tools/.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::tools {

inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

// Adds --help, --version and the footer, and parses. The exit code when there is nothing left to
// do: help, version or wrong usage, all printed.
std::optional<int> parse_command_line(CLI::App& app, std::string_view footer, int argc,
                                      const char* const* argv);

// "PROGRAM: MESSAGE" on stderr; gives back the exit code.
int fail(std::string_view program, std::string_view message, int exit_code = kFailure);

// The whole text on stdout, or a failure that says it could not be written.
int print(std::string_view program, std::string_view text);

}  // namespace llorch::tools
