// Another program in the foreground of our terminal: it reads the keyboard, asks, and gets Ctrl-C.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace llorch::base {

// Runs the program with our own standard input, output and error, in our process group, and waits
// for its end. NotFound or Forbidden when it cannot be executed.
Result<ExitStatus> run_in_foreground(const std::filesystem::path& program,
                                     const std::vector<std::string>& arguments);

}  // namespace llorch::base
