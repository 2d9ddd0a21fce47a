// llorch-inspect: shows what a model file holds.
#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/inspect_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_inspect(argc, argv, std::getenv("NO_COLOR"));
}
