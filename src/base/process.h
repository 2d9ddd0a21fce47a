// Other programs as child processes: started in a process group of their own, watched, and never
// left behind. The only place that forks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace llorch::base {

// How a process ended: by itself with a code, or by a signal.
struct ExitStatus {
  int code = 0;    // when signal is 0
  int signal = 0;  // 0: none

  bool success() const { return code == 0 && signal == 0; }
  // "exited with code 3", "was ended by signal 9 (Killed)".
  std::string describe() const;

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

struct ProcessOptions {
  std::filesystem::path program;  // a path; PATH is not searched
  std::vector<std::string> arguments;
  // The newest bytes of its output (both streams, as they came) that output_tail keeps. The rest
  // is read and dropped, so the child never waits for us.
  std::size_t output_tail_bytes = std::size_t{16} << 10;
  // The kernel kills the child as soon as the thread that called spawn ends, whatever ended it:
  // spawn from a thread that lives as long as the child shall.
  bool dies_with_parent = false;
};

// One child with empty standard input. Its signals are reset to their defaults, and it inherits no
// other open files. All functions may be called from any thread, together.
class Process {
 public:
  // NotFound or Forbidden when the program cannot be executed.
  static Result<std::unique_ptr<Process>> spawn(const ProcessOptions& options);
  // Kills the whole group and waits for the child.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int pid() const { return pid_; }

  // To every process of its group; nothing happens once the child has been waited for.
  void send_signal(int signal);

  // Waits at most `patience`; nothing when the child still runs then. Once it has ended, the answer
  // stays the same.
  std::optional<ExitStatus> wait_for(std::chrono::milliseconds patience);

  // Asks it to end (SIGTERM) and after `patience` makes it end (SIGKILL, the whole group).
  ExitStatus stop(std::chrono::milliseconds patience);

  // The end of what it has written so far; all of that when it has ended.
  std::string output_tail() const;

 private:
  Process(int pid, int output_fd, std::size_t tail_bytes);
  std::optional<ExitStatus> poll_exit();
  void read_output(int fd);

  const int pid_;
  const std::size_t tail_bytes_;
  mutable std::mutex mutex_;  // guards the next three
  std::optional<ExitStatus> exit_;
  std::string tail_;
  bool output_ended_ = false;
  mutable std::condition_variable output_end_;
  std::thread reader_;
};

}  // namespace llorch::base
