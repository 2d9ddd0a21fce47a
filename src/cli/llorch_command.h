// The command line of llorch.
#pragma once

#include "base/home.h"

namespace llorch::cli {

// Returns the exit code: 0 ok, 1 failure, 2 usage, 130 interrupted. Call it before the program
// makes threads.
int run_llorch(int argc, const char* const* argv, const base::Environment& environment);

}  // namespace llorch::cli
