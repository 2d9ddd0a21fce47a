#include "cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
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

int print(std::string_view text) {
  if (write_out(text)) return 0;
  complain("the output cannot be written");
  return kFailure;
}

int print_json(const json::Value& value) {
  return print(json::serialize(value) + "\n");
}

std::size_t fold_width() {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : base::TextTable::kNoWidth;
}

int fail(const Error& error) {
  complain_lines(error.message);
  return kFailure;
}

void complain(std::string_view message) {
  write_err(fmt::format("{}: {}\n", program_invocation_short_name, base::printable(message)));
}

void complain_lines(std::string_view message) {
  const std::size_t end = std::min(message.size(), message.find('\n'));
  complain(message.substr(0, end));
  message.remove_prefix(std::min(message.size(), end + 1));
  while (!message.empty()) {
    const std::size_t next = std::min(message.size(), message.find('\n'));
    write_err(base::printable(message.substr(0, next)) + "\n");
    message.remove_prefix(std::min(message.size(), next + 1));
  }
}

}  // namespace llorch::cli
