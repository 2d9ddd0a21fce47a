// llorch-bench: measures models.
#include <cstdlib>

#include "tools/bench_command.h"

int main(int argc, char** argv) {
  return llorch::tools::run_bench_command(argc, argv, std::getenv("NO_COLOR"));
}
