// worker-orcd: serves one model from an NVIDIA GPU over HTTP. llorch-cudad is a link to it.
#include <cstdlib>

#include "contract/backend_kind.h"
#include "worker/run.h"

int main(int argc, char** argv) {
  return llorch::worker::run_worker(llorch::contract::kCudaKind, argc, argv,
                                    [](const char* name) { return std::getenv(name); });
}
