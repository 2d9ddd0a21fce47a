// Running ssh: one call to its end, and the master connection that stays.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/home.h"
#include "base/process.h"
#include "base/result.h"
#include "remote/ssh.h"
#include "remote/ssh_failure.h"

namespace llorch::remote {

// The user's own ssh, by PATH. NotFound says what to install.
Result<std::filesystem::path> find_ssh(const base::Environment& environment);

struct SshCall {
  SshWords words;
  std::chrono::milliseconds patience{60'000};
  std::filesystem::path input_file;  // standard input of what runs there; empty: none
  std::size_t max_output_bytes = std::size_t{1} << 20;  // the newest are kept
  // Every byte of it as it comes, on a thread of the call's own; ssh waits while it runs.
  std::function<void(std::string_view bytes)> on_output{};
};

struct SshOutcome {
  base::ExitStatus exit;  // the remote command's own; 255: ssh itself failed
  std::string output;     // both streams, as they came

  bool success() const { return exit.success(); }
};

// Waits for the end. DeadlineExceeded: it was killed after its patience.
Result<SshOutcome> run_ssh(const std::filesystem::path& ssh, const SshCall& call);

// The connection to one host. Ended by its destructor, and by the kernel when the thread that
// started it ends. Any thread.
class SshMaster {
 public:
  // Waits until the connection stands. The error is an SshFailure, told with what ssh printed.
  struct Started {
    std::unique_ptr<SshMaster> master;  // null: it failed
    SshFailure failure;
  };
  // A control socket that nobody answers any more is taken away first. One that a living master
  // answers is adopted: then nothing of ours runs, and has_ended asks that master.
  static Started start(const std::filesystem::path& ssh, const SshHost& host,
                       FirstContact first_contact, std::chrono::milliseconds patience);
  ~SshMaster();
  SshMaster(const SshMaster&) = delete;
  SshMaster& operator=(const SshMaster&) = delete;

  bool is_adopted() const { return process_ == nullptr; }
  // Whether the connection is gone, looking for at most `patience`.
  bool has_ended(std::chrono::milliseconds patience = std::chrono::milliseconds(0));
  // Why it ended.
  SshFailure failure() const;

 private:
  SshMaster(std::filesystem::path ssh, SshHost host)
      : ssh_(std::move(ssh)), host_(std::move(host)) {}
  bool answers() const;

  const std::filesystem::path ssh_;
  const SshHost host_;
  std::unique_ptr<base::Process> process_;  // null: adopted
};

}  // namespace llorch::remote
