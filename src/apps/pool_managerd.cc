// pool-managerd: one per host; its models, its devices, its workers.
#include <cstdlib>

#include "base/standard_streams.h"
#include "pool/run.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::pool::run_pool("pool-managerd", {argv + (argc > 0 ? 1 : 0), argv + argc},
                                [](const char* name) { return std::getenv(name); });
}
