// llorch: the user's command line.
#include <cstdlib>

#include "base/standard_streams.h"
#include "cli/llorch_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::cli::run_llorch(argc, argv, [](const char* name) { return std::getenv(name); });
}
