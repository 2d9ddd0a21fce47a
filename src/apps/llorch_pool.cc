// llorch-pool: the command line of one host.
#include <cstdlib>

#include "cli/pool_command.h"

int main(int argc, char** argv) {
  return llorch::cli::run_llorch_pool(argc, argv,
                                      [](const char* name) { return std::getenv(name); });
}
