// llorch-cpud: serves one model from the CPU over HTTP.
#include <cstdlib>

#include "worker/run.h"

int main(int argc, char** argv) {
  return llorch::worker::run_worker({.name = "llorch-cpud", .device = "cpu"}, argc, argv,
                                    [](const char* name) { return std::getenv(name); });
}
