// llorch-inspect: shows what a model file holds.
#include <cstdlib>

#include "tools/inspect_command.h"

int main(int argc, char** argv) {
  return llorch::tools::run_inspect(argc, argv, std::getenv("NO_COLOR"));
}
