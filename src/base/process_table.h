// Processes that are not our children, or no longer: who they are, whether they still run, and a
// safe hold on them. A pid alone is never trusted: the kernel gives numbers away again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llorch::base {

// One process for ever: no other one has the same three.
struct ProcessIdentity {
  int pid = 0;
  std::int64_t start_ticks = 0;  // since boot, as /proc/PID/stat has it
  std::string boot_id;

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Of the machine since it was switched on.
std::string current_boot_id();

// Nothing when no such process runs; one that has ended and only waits for its parent counts as
// ended.
std::optional<ProcessIdentity> identify_process(int pid);
bool is_running(const ProcessIdentity& identity);

// A hold on one process: signals go to it and nobody else, even when its number is given away.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  ~ProcessHandle() { reset(); }
  ProcessHandle(ProcessHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;

  // NotFound when it has ended.
  static Result<ProcessHandle> open(const ProcessIdentity& identity);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }  // readable once the process has ended
  // Also waits for it, where it is our child, so that no zombie stays.
  bool has_ended() const;
  // The signal that ended our child, asked before has_ended; 0: it runs, or ended otherwise.
  int ending_signal() const;
  void send_signal(int signal) const;

 private:
  void reset();
  int fd_ = -1;
};

// Processes of this user whose environment has exactly this entry ("NAME=value"): what a process
// started and all that those started, unless they hide it.
std::vector<int> processes_with_variable(std::string_view entry);
// Whether the environment that a process began with has a variable of that name.
bool has_variable(int pid, std::string_view name);
std::vector<int> children_of(int pid);
// The program that a process runs, as a path; where that file has been removed or replaced since,
// the path has " (deleted)" at its end. Empty: there is no such process, or it is not ours.
std::filesystem::path program_of(int pid);

struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;       // the most that was ever resident
  std::int64_t anonymous_bytes = 0;  // of the resident ones, those that no file gives back
};
ProcessMemory read_process_memory(int pid);  // zeros when it is not there

}  // namespace llorch::base
