// One host from a name that ssh knows to a pool that answers through a tunnel, step by step. Each
// step may be repeated: it looks first and does only what is missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "remote/install_plan.h"
#include "remote/preflight.h"
#include "remote/ssh_run.h"

namespace llorch::remote {

// The programs that are copied to a host, of those in `folder`: all that a pool needs. NotFound:
// one of them is missing.
Result<std::vector<ProgramFile>> find_programs(const std::filesystem::path& folder);

// Where the programs for such a machine ("x86_64", "aarch64") lie: in `folder`/x86-64/bin or
// `folder`/arm64/bin, where portable ones are (scripts/build_portable.sh), else in `folder` itself
// when this machine is of the same kind. NotFound: there are none.
Result<std::filesystem::path> find_program_folder(const std::filesystem::path& folder,
                                                  const std::string& machine);

struct StepProblem {
  std::string reason;           // a plain sentence that says what to do
  bool needs_a_person = false;  // trying again by itself is useless
};
using StepOutcome = std::optional<StepProblem>;  // nothing: it is done

// A pool that runs there.
struct RemotePool {
  std::string url;      // on its own loopback
  std::string socket;   // absolute; empty: it has none
  std::string runs_as;  // for people: a service, or a process of its own and why
};

struct Tunnel {
  std::filesystem::path socket;  // here
  std::string port;              // of the pool, where it leads to that; empty: to its socket
};

// Belongs to one thread, which lives as long: the connection ends with it.
class HostSession {
 public:
  // `programs`: as for find_program_folder.
  HostSession(std::filesystem::path ssh, SshHost host, std::filesystem::path programs);
  ~HostSession();
  HostSession(const HostSession&) = delete;
  HostSession& operator=(const HostSession&) = delete;

  const SshHost& host() const { return host_; }

  // The connection, unless it stands.
  StepOutcome connect(FirstContact first_contact = FirstContact::Refuse);
  bool is_connected();
  // Whether it still stands after that time: one that breaks may outlive its calls by a moment.
  bool stays_connected(std::chrono::milliseconds patience);
  void disconnect();  // ours only; one that a user opened stays

  // Whether our programs can run there: every finding, failed or not.
  Result<std::vector<Finding>> look();

  // `on_file` is told each program that has to be sent, before it is.
  using OnFile = std::function<void(const ProgramFile& file)>;
  struct InstallOutcome {
    StepOutcome problem;
    bool is_new_version = false;  // see InstallPlan
  };
  InstallOutcome install(const OnFile& on_file);
  StepOutcome roll_back();

  // Finds or starts the pool there: as a service of its user's systemd where that can be, else as
  // a process of its own. One that runs another of our versions than the current one is replaced;
  // its workers go on.
  Result<RemotePool> start_pool();
  StepOutcome stop_pool();
  // A way to it from here: to its socket, or to its port where the other sshd forwards no sockets.
  Result<Tunnel> open_tunnel(const RemotePool& pool);

 private:
  // A command of ours there, to its end.
  Result<SshOutcome> run(const RemoteCommand& command, std::chrono::milliseconds patience);
  Result<SshOutcome> run_script(std::string_view script, std::chrono::milliseconds patience,
                                const std::filesystem::path& input = {});
  Result<Installed> list();
  StepOutcome perform(const Manifest& manifest, const InstallPlan& plan, const OnFile& on_file);
  Status send_files(const InstallPlan& plan, const OnFile& on_file);
  Status check_runs(const std::string& version);
  Result<SshOutcome> order_start();

  const std::filesystem::path ssh_;
  const SshHost host_;
  const std::filesystem::path programs_;
  std::unique_ptr<SshMaster> master_;
  std::optional<HostFacts> facts_;
  std::string forwarded_;  // the other end of the tunnel; empty: there is none
};

}  // namespace llorch::remote
