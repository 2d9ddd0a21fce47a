#include "support/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

extern char** environ;

namespace llorch::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{2};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

ChildProcess::ChildProcess(std::string program, std::vector<std::string> arguments,
                           std::vector<std::string> environment) {
  const std::string out = folder_ / "out";
  const std::string err = folder_ / "err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), variables.data()),
            0)
      << program;
  posix_spawn_file_actions_destroy(&actions);
}

ChildProcess::~ChildProcess() {
  if (!is_running()) return;
  signal(SIGKILL);
  wait();
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !exit_code_) ::kill(pid_, number);
}

bool ChildProcess::is_running() {
  return pid_ > 0 && !wait(std::chrono::milliseconds(0));
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!exit_code_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(kTick);
    }
  }
  return exit_code_;
}

std::string ChildProcess::out() const {
  return read_all(folder_ / "out");
}

std::string ChildProcess::err() const {
  return read_all(folder_ / "err");
}

bool ChildProcess::wait_for_err(std::string_view text, std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (err().find(text) == std::string::npos) {
    if (Clock::now() >= deadline) return false;
    if (!is_running()) return err().find(text) != std::string::npos;
    std::this_thread::sleep_for(kTick);
  }
  return true;
}

std::int64_t ChildProcess::resident_bytes() const {
  std::ifstream in(fmt::format("/proc/{}/statm", pid_));
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  in >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace llorch::test
