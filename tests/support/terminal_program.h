// A program of ours at a terminal of the test's own, as a person uses it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace llorch::test {

// One thread. Killed with the object, if it still runs.
class TerminalProgram {
 public:
  // At a terminal of 60 columns and 24 lines. `environment` is added to this process's own, each
  // "NAME=value".
  TerminalProgram(const std::string& program, std::vector<std::string> arguments,
                  std::vector<std::string> environment = {});
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(std::string_view keys) const;
  // Reads on until the text has come since the last call; false when it does not.
  bool shows(std::string_view text);
  // Its exit code, once it has ended by itself; -1 when it does not.
  int wait();
  const std::string& seen() const { return seen_; }

 private:
  bool read_more();

  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string seen_;
  std::size_t used_ = 0;
};

}  // namespace llorch::test
