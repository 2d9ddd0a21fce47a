// A worker process from its command line to its exit code.
#pragma once

#include <string_view>

#include "worker/run_options.h"

namespace llorch::worker {

// Which worker: its name on the command line and what it computes on.
struct WorkerProgram {
  std::string_view name = "llorch-cpud";
  std::string_view device = "cpu";
};

// Validates the flags, listens, loads, warms up, tells the callback, serves until SIGTERM, SIGINT
// or POST /shutdown, drains. 0 ok, 1 failure (one line on stderr), 2 usage, 130 a second signal.
int run_worker(const WorkerProgram& program, int argc, char** argv, const Environment& environment);

}  // namespace llorch::worker
