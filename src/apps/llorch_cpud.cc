// llorch-cpud: serves one model from the CPU over HTTP.
#include <cstdlib>

#include "contract/backend_kind.h"
#include "worker/run.h"

int main(int argc, char** argv) {
  return llorch::worker::run_worker(llorch::contract::kCpuKind, argc, argv,
                                    [](const char* name) { return std::getenv(name); });
}
