// worker-orcd: serves one model from an NVIDIA GPU over HTTP. llorch-cudad is a link to it.
#include <cstdlib>

#include "base/standard_streams.h"
#include "contract/backend_kind.h"
#include "worker/run.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::worker::run_worker(llorch::contract::kCudaKind, argc, argv,
                                    [](const char* name) { return std::getenv(name); });
}
