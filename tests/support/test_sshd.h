// A real sshd on loopback that plays another host: own keys, own home, any login shell. Runs as the
// user who runs the tests, root or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "support/child_process.h"
#include "support/test_paths.h"

namespace llorch::test {

class TestSshd {
 public:
  // Commands are run by `shell` as by a login shell, in home(). Null, after a loud line on stderr,
  // where there is no OpenSSH or it refuses to run; the test then calls GTEST_SKIP().
  static std::unique_ptr<TestSshd> start(const std::string& shell = "/bin/sh");

  const std::filesystem::path& home() const { return home_; }
  // The client, with a configuration in which "testhost" is this one, and with no other. It stands
  // for the user's own ssh, whose configuration tests cannot replace.
  const std::filesystem::path& ssh() const { return ssh_; }
  // Whether the client knows the host's key, and has a key that lets it in.
  void know_host_key(bool known) const;
  void allow_login(bool allowed) const;
  std::uint16_t port() const { return port_; }
  std::string log() const { return server_->err(); }
  void stop() { server_.reset(); }

 private:
  TestSshd() = default;
  bool write_files(const std::string& shell);
  bool listen();

  TempDir folder_;
  std::filesystem::path home_;
  std::filesystem::path ssh_;
  std::uint16_t port_ = 0;
  std::unique_ptr<ChildProcess> server_;
};

}  // namespace llorch::test
