// A worker process from its command line to its exit code.
#pragma once

#include "worker/run_options.h"

namespace llorch::worker {

// Validates the flags, listens, loads, warms up, tells the callback, serves until SIGTERM, SIGINT
// or POST /shutdown, drains. 0 ok, 1 failure (one line on stderr), 2 usage, 130 a second signal.
// `kind`: which worker this is. With --plan-memory it prints one contract::MemoryNeed as JSON
// instead, and ends.
int run_worker(const contract::BackendKind& kind, int argc, char** argv,
               const Environment& environment);

}  // namespace llorch::worker
