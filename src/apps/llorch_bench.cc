// llorch-bench: measures models.
#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/bench_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_bench_command(argc, argv, std::getenv("NO_COLOR"));
}
