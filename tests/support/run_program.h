// Runs a program as a user would and collects what it said.
#pragma once

#include <string>
#include <vector>

namespace llorch::test {

struct ProgramOutcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// Waits for the program to end; its standard input is empty. `environment` comes in front of this
// process's own, each "NAME=value".
ProgramOutcome run_program(std::string program, std::vector<std::string> arguments,
                           std::vector<std::string> environment = {});

}  // namespace llorch::test
