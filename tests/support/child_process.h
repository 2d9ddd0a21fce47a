// A program of ours as a child process: started, watched through what it writes, signalled and
// waited for. Never left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/test_paths.h"

namespace llorch::test {

class ChildProcess {
 public:
  // `environment` is added to this process's own, each "NAME=value".
  ChildProcess(std::string program, std::vector<std::string> arguments,
               std::vector<std::string> environment = {});
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Its exit code once it has ended, -1 when a signal ended it; nothing when it still runs after
  // `patience`.
  std::optional<int> wait(std::chrono::milliseconds patience = std::chrono::seconds(20));
  bool is_running();

  std::string out() const;  // all of stdout so far
  std::string err() const;  // all of stderr so far
  // Waits until stderr holds the text; false when it does not come or the process ends without.
  bool wait_for_err(std::string_view text,
                    std::chrono::milliseconds patience = std::chrono::seconds(20));

  std::int64_t resident_bytes() const;  // of memory, now

 private:
  TempDir folder_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace llorch::test
