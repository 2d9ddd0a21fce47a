// Other programs as child processes: started in a process group of their own, watched, and never
// left behind. The only place that forks.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/confinement.h"
#include "base/mutex.h"
#include "base/process_table.h"
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
  std::optional<std::vector<std::string>> environment;  // "NAME=value"; none: our own
  std::filesystem::path input_file;                     // its standard input; empty: none
  // Every byte of its output (both streams, as they came), on a thread of the Process. The child
  // waits while it runs.
  std::function<void(std::string_view bytes)> on_output;
  // The newest bytes of its output (both streams, as they came) that output_tail keeps. The rest
  // is read and dropped, so the child never waits for us.
  std::size_t output_tail_bytes = std::size_t{16} << 10;
  // The kernel kills the child as soon as the thread that called spawn ends, whatever ended it:
  // spawn from a thread that lives as long as the child shall.
  bool dies_with_parent = false;
  std::shared_ptr<const Confinement> confinement;  // null: none
};

// The program of that name in the first of the folders that has one; `search_path` is what PATH
// holds. Relative folders are passed over. Empty: none has it.
std::filesystem::path find_program(std::string_view name, std::string_view search_path);

// Becomes the program, in this process: with its words (the first is its own name), our
// environment plus `variables` ("NAME=value", which replace those of the same name), our open
// standard files, process group and signals. Returns only when that failed: NotFound, Forbidden.
Error become_program(const std::filesystem::path& program, std::vector<std::string> words,
                     const std::vector<std::string>& variables);

// One child. Its signals are reset to their defaults, and it inherits no
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
  Process(int pid, int output_fd, const ProcessOptions& options);
  std::optional<ExitStatus> poll_exit();
  void read_output(int fd);
  void keep(std::string_view output);

  const int pid_;
  const std::size_t tail_bytes_;
  const std::function<void(std::string_view)> on_output_;
  mutable Mutex mutex_;
  std::optional<ExitStatus> exit_ LLORCH_GUARDED_BY(mutex_);
  std::string tail_ LLORCH_GUARDED_BY(mutex_);
  bool output_ended_ LLORCH_GUARDED_BY(mutex_) = false;
  mutable CondVar output_end_;
  std::jthread reader_;
};

// A child that shall outlive us: in a session of its own, with no input and no open files of ours
// but `output`, where its output goes (-1: nowhere). It is forked and then waits; only release()
// lets it become its program. When we end before that, however, it ends too and nothing has run:
// what must be on disk before the program may run is written in between.
class HeldProcess {
 public:
  static Result<std::unique_ptr<HeldProcess>> spawn(const std::filesystem::path& program,
                                                    std::vector<std::string> arguments,
                                                    std::vector<std::string> environment,
                                                    int output = -1);
  // One that was never released ends without having run.
  ~HeldProcess();
  HeldProcess(const HeldProcess&) = delete;
  HeldProcess& operator=(const HeldProcess&) = delete;

  const ProcessIdentity& identity() const { return identity_; }

  // Lets it run, once. The handle waits for it when it ends (ProcessHandle::has_ended). NotFound or
  // Forbidden when the program cannot be executed.
  Result<ProcessHandle> release();

 private:
  HeldProcess() = default;

  std::filesystem::path program_;
  ProcessIdentity identity_;
  ProcessHandle handle_;
  int go_fd_ = -1;     // a byte lets it run, its end makes it end
  int error_fd_ = -1;  // errno of a failed exec, or its end
};

}  // namespace llorch::base
