// llorch-cpud: serves one model from the CPU over HTTP.
#include <cstdlib>

#include "base/standard_streams.h"
#include "contract/backend_kind.h"
#include "worker/run.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::worker::run_worker(llorch::contract::kCpuKind, argc, argv,
                                    [](const char* name) { return std::getenv(name); });
}
