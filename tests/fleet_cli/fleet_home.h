// A home whose fleet is used as a user types it, and a host beside it that only runs sshd.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "support/test_sshd.h"

namespace llorch::test {

// A home of its own; at the end everything that was started in it must be gone.
class FleetHome {
 public:
  explicit FleetHome(std::vector<std::string> environment = {});
  ~FleetHome();
  FleetHome(const FleetHome&) = delete;
  FleetHome& operator=(const FleetHome&) = delete;

  std::filesystem::path path() const { return folder_.path(); }
  std::vector<std::string> environment() const;
  ProgramOutcome llorch(std::vector<std::string> words) const;
  // The same with --json: its standard output parsed.
  json::Value json(std::vector<std::string> words) const;
  pid_t orchestrator() const;
  void kill_orchestrator() const;
  std::vector<int> processes() const;

 private:
  void print_logs() const;

  TempDir folder_;
  std::vector<std::string> more_;
};

// The environment of a home that reaches this host, and gives it the programs of `programs`.
std::vector<std::string> reaching(const TestSshd& sshd, const std::filesystem::path& programs);

// Programs as hosts get them: without debug information, so that the copy is quick.
void strip_programs(const std::filesystem::path& folder);

// A user's systemd as far as a pool needs one: what it starts is started again when it fails. What
// it is asked for stands in ~/calls, the process that looks after the service in ~/service.pid.
void write_fake_systemd(const std::filesystem::path& home);

std::string content_of(const std::filesystem::path& file);

}  // namespace llorch::test
