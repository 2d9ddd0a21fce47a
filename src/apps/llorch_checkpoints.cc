#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/checkpoints.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_checkpoints(argc, argv, std::getenv("NO_COLOR"));
}
