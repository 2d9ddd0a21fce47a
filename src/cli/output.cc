#include "cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/terminal.h"

namespace llorch::cli {

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void write_err(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void complain(std::string_view message) {
  write_err(fmt::format("{}: {}\n", program_invocation_short_name, base::printable(message)));
}

}  // namespace llorch::cli
