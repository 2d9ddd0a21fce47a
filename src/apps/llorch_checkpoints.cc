#include <cstdlib>

#include "tools/checkpoints.h"

int main(int argc, char** argv) {
  return llorch::tools::run_checkpoints(argc, argv, std::getenv("NO_COLOR"));
}
