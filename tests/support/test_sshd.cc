#include "support/test_sshd.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "support/listener.h"
#include "support/run_program.h"

namespace llorch::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSshd = "/usr/sbin/sshd";
constexpr const char* kSsh = "/usr/bin/ssh";
constexpr const char* kKeygen = "/usr/bin/ssh-keygen";
// sshd cannot take port 0: between our look for a free one and its bind somebody may take it.
constexpr int kTries = 5;

void say_loudly(const std::string& why) {
  std::fprintf(stderr, "SKIPPED: tests with a real sshd: %s (scripts/setup.sh test installs it)\n",
               why.c_str());
}

void write(const fs::path& file, const std::string& text, fs::perms perms = fs::perms(0600)) {
  std::ofstream(file) << text;
  fs::permissions(file, perms);
}

std::string read(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::unique_ptr<TestSshd> TestSshd::start(const std::string& shell) {
  for (const char* program : {kSshd, kSsh, kKeygen}) {
    if (::access(program, X_OK) == 0) continue;
    say_loudly(fmt::format("{} is not here", program));
    return nullptr;
  }
  std::unique_ptr<TestSshd> sshd(new TestSshd());
  if (!sshd->write_files(shell)) return nullptr;
  for (int i = 0; i < kTries; ++i)
    if (sshd->listen()) return sshd;
  say_loudly("it does not run: " + sshd->log());
  return nullptr;
}

bool TestSshd::write_files(const std::string& shell) {
  home_ = folder_ / "home";
  ssh_ = folder_ / "ssh";
  fs::create_directory(home_);
  for (const char* key : {"host_key", "user_key"}) {
    const ProgramOutcome made = run_program(
        kKeygen, {"-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", (folder_ / key).string()});
    if (made.exit_code == 0) continue;
    say_loudly("ssh-keygen: " + made.err);
    return false;
  }
  write(folder_ / "login",
        fmt::format("#!/bin/sh\nexport HOME='{0}' PATH='{0}/bin':\"$PATH\"\ncd '{0}' || exit 1\n"
                    "exec {1} -c \"$SSH_ORIGINAL_COMMAND\"\n",
                    home_.string(), shell),
        fs::perms(0700));
  write(ssh_,
        fmt::format("#!/bin/sh\nexec {} -F '{}' \"$@\"\n", kSsh, (folder_ / "config").string()),
        fs::perms(0700));
  allow_login(true);
  // Its own folder of root's; everybody else needs none.
  std::error_code error;
  if (::geteuid() == 0) fs::create_directories("/run/sshd", error);
  return true;
}

bool TestSshd::listen() {
  port_ = free_port();
  const std::string folder = folder_.path().string();
  write(folder_ / "sshd_config",
        fmt::format("Port {0}\nListenAddress 127.0.0.1\nHostKey {1}/host_key\n"
                    "AuthorizedKeysFile {1}/authorized_keys\nPidFile none\nStrictModes no\n"
                    "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                    "PermitRootLogin yes\nForceCommand {1}/login\n",
                    port_, folder));
  write(folder_ / "config",
        fmt::format("Host testhost\n  HostName 127.0.0.1\n  Port {0}\n  IdentityFile {1}/user_key\n"
                    "  IdentitiesOnly yes\n  UserKnownHostsFile {1}/known_hosts\n"
                    "  GlobalKnownHostsFile /dev/null\n",
                    port_, folder));
  know_host_key(true);
  server_ = std::make_unique<ChildProcess>(
      kSshd, std::vector<std::string>{"-D", "-e", "-f", (folder_ / "sshd_config").string()});
  return server_->wait_for_err("Server listening");
}

void TestSshd::know_host_key(bool known) const {
  write(folder_ / "known_hosts",
        known ? fmt::format("[127.0.0.1]:{} {}", port_, read(folder_ / "host_key.pub")) : "");
}

void TestSshd::allow_login(bool allowed) const {
  write(folder_ / "authorized_keys", allowed ? read(folder_ / "user_key.pub") : "");
}

}  // namespace llorch::test
