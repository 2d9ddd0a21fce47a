#include "tools/command_line.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/similar_names.h"
#include "base/terminal.h"
#include "base/version.h"

namespace llorch::tools {
std::optional<int> parse_command_line(CLI::App& app, std::string_view footer, int argc,
                                      const char* const* argv) {
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", fmt::format("{} {}", app.get_name(), base::version()),
                       "print the version");
  app.footer(std::string(footer));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version arrive here, too
    return fail(app.get_name(),
                fmt::format("{}; `{} --help` says more",
                            base::tell_problem<CLI::ExtrasError>(app, error), app.get_name()),
                kUsage);
  }
  return std::nullopt;
}

int fail(std::string_view program, std::string_view message, int exit_code) {
  const std::string line = fmt::format("{}: {}\n", program, base::printable(message));
  std::fputs(line.c_str(), stderr);
  return exit_code;
}

int print(std::string_view program, std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : fail(program, "the output could not be written");
}

}  // namespace llorch::tools
