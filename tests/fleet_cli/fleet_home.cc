#include "fleet_cli/fleet_home.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/process_table.h"
#include "support/eventually.h"

namespace llorch::test {

namespace fs = std::filesystem;

FleetHome::FleetHome(std::vector<std::string> environment) : more_(std::move(environment)) {
  std::ofstream(folder_ / "config.toml")
      << "[orchestrator]\nport = 0\n[pool]\nport = 0\n[worker]\nthreads = 1\n";
}

FleetHome::~FleetHome() {
  const ProgramOutcome down = llorch({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(eventually([this] { return processes().empty(); })) << "a process was left behind";
  for (const int pid : processes()) ::kill(pid, SIGKILL);
  if (::testing::Test::HasFailure()) print_logs();
}

std::vector<std::string> FleetHome::environment() const {
  std::vector<std::string> all = {"LLORCH_HOME=" + folder_.path().string(), "LLORCH_POOL=",
                                  "LLORCH_ORCHESTRATOR=", "LLORCH_TOKEN=", "LLORCH_CONFIG="};
  all.insert(all.end(), more_.begin(), more_.end());
  return all;
}

ProgramOutcome FleetHome::llorch(std::vector<std::string> words) const {
  return run_program(LLORCH, std::move(words), environment());
}

json::Value FleetHome::json(std::vector<std::string> words) const {
  words.emplace_back("--json");
  const ProgramOutcome outcome = llorch(std::move(words));
  Result<json::Value> value = json::parse(outcome.out);
  EXPECT_TRUE(value.ok()) << outcome.out << outcome.err;
  return value.ok() ? value.take() : json::Value(json::Object());
}

pid_t FleetHome::orchestrator() const {
  std::ifstream in(folder_ / "orchestrator.json");
  const Result<json::Value> address =
      json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  return address.ok() ? static_cast<pid_t>(address->at("pid").as_int64()) : 0;
}

void FleetHome::kill_orchestrator() const {
  const pid_t pid = orchestrator();
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(eventually([this, pid] {
    const std::vector<int> all = processes();
    return std::find(all.begin(), all.end(), pid) == all.end();
  }));
}

std::vector<int> FleetHome::processes() const {
  return base::processes_with_variable("LLORCH_HOME=" + folder_.path().string());
}

void FleetHome::print_logs() const {
  for (const char* name : {"orchestrator.log", "pool.log"}) {
    fprintf(stderr, "--- %s\n%s\n", name, content_of(folder_ / "logs" / name).c_str());
  }
}

std::vector<std::string> reaching(const TestSshd& sshd, const fs::path& programs) {
  const char* path = std::getenv("PATH");
  return {
      "LLORCH_HOST_PROGRAMS=" + programs.string(),
      fmt::format("PATH={}:{}", sshd.ssh().parent_path().string(), path != nullptr ? path : "")};
}

void strip_programs(const fs::path& folder) {
  for (const char* name : {"llorch-pool", "pool-managerd", "llorch-cpud"}) {
    const fs::path source = fs::path(LLORCH).parent_path() / name;
    const ProgramOutcome done =
        run_program("/usr/bin/strip", {"-o", (folder / name).string(), source.string()});
    if (done.exit_code != 0) fs::copy_file(source, folder / name);
  }
}

void write_fake_systemd(const fs::path& home) {
  fs::create_directories(home / "bin");
  const auto write = [&home](const char* name, std::string_view body) {
    std::ofstream(home / "bin" / name)
        << "#!/bin/sh\necho \"" << name << " $*\" >> \"$HOME/calls\"\n"
        << body;
    fs::permissions(home / "bin" / name, fs::perms(0700));
  };
  write("getent", "echo \"me:x:1:1::$HOME:/bin/sh\"\n");
  write("loginctl", "test ! -e \"$HOME/no-linger\"\n");
  write("systemctl", R"(u="$HOME/.config/systemd/user/$3"
case "$2" in
  enable) test -e "$u" ;;
  start)
    program=$(sed -n "s|^ExecStart=||p" "$u" | sed "s|%h|$HOME|g")
    if ! kill -0 $(cat "$HOME/service.pid"); then
      NOTIFY_SOCKET="$HOME/notify" setsid sh -c "until $program; do sleep 0.1; done" >/dev/null 2>&1 </dev/null &
      echo $! > "$HOME/service.pid"
    fi
    until "$HOME/.local/lib/llorch/current/llorch-pool" health >/dev/null 2>&1; do sleep 0.1; done ;;
esac
)");
}

std::string content_of(const fs::path& file) {
  const std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace llorch::test
