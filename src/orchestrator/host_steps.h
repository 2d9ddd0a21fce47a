// SshHostSteps: what the decisions order about other hosts, performed with ssh. Each host has a
// thread of its own, which also holds its connection: a host that does not answer delays nobody.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "orchestrator/ports.h"
#include "remote/ssh.h"

namespace llorch::orchestrator {

struct SshHostStepsOptions {
  std::filesystem::path ssh;         // the user's own
  std::filesystem::path run_folder;  // remote::make_run_folder
  std::filesystem::path programs;    // that hosts get; remote::find_program_folder
  // A connection that stood has broken. On a thread of ours; must not wait.
  std::function<void(const fleet::HostId& host, std::string reason)> on_lost;
};

// Any thread.
class SshHostSteps final : public HostSteps {
 public:
  explicit SshHostSteps(SshHostStepsOptions options);
  ~SshHostSteps() override;

  // Ends every connection that is ours, and with it the steps under way; those that wait, and those
  // that are ordered from now on, are answered with a failure.
  void stop();

  void step(const fleet::HostId& host, fleet::HostAction action, OnEnd on_end) override;

 private:
  class Line;

  const SshHostStepsOptions options_;
  base::Mutex mutex_;
  bool has_ended_ LLORCH_GUARDED_BY(mutex_) = false;
  std::map<fleet::HostId, std::unique_ptr<Line>> lines_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::orchestrator
