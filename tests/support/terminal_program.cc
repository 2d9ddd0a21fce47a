#include "support/terminal_program.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>

namespace llorch::test {
namespace {

constexpr std::chrono::seconds kPatience{30};

}  // namespace

TerminalProgram::TerminalProgram(const std::string& program, std::vector<std::string> arguments,
                                 std::vector<std::string> environment) {
  std::string name = program.substr(program.rfind('/') + 1);
  std::vector<char*> words = {name.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  environment.insert(environment.begin(), {"TERM=xterm", "LC_ALL=C.UTF-8"});
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 60;
  pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    for (std::string& variable : environment) ::putenv(variable.data());
    ::execv(program.c_str(), words.data());
    ::_exit(127);
  }
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(terminal_);
}

void TerminalProgram::type(std::string_view keys) const {
  EXPECT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

bool TerminalProgram::shows(std::string_view text) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const std::size_t found = seen_.find(text, used_);
    if (found != std::string::npos) {
      used_ = found + text.size();
      return true;
    }
    if (std::chrono::steady_clock::now() > until || !read_more()) return false;
  }
}

int TerminalProgram::wait() {
  while (read_more()) {
  }
  int status = 0;
  pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)), POLLIN, 0};
  const bool has_ended = ::poll(&end, 1, 10'000) == 1;
  ::close(end.fd);
  if (!has_ended) return -1;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool TerminalProgram::read_more() {
  pollfd fd{terminal_, POLLIN, 0};
  if (::poll(&fd, 1, 30'000) <= 0) return false;
  char buffer[4096];
  const ssize_t got = ::read(terminal_, buffer, sizeof buffer);
  if (got <= 0) return false;
  seen_.append(buffer, static_cast<std::size_t>(got));
  return true;
}

}  // namespace llorch::test
