// llorch: the user's command line.
#include <cstdlib>

#include "cli/llorch_command.h"

int main(int argc, char** argv) {
  return llorch::cli::run_llorch(argc, argv, [](const char* name) { return std::getenv(name); });
}
