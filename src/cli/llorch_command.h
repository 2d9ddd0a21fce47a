// The command line of llorch.
#pragma once

namespace llorch::cli {

// `no_color`: the value of NO_COLOR, null when unset. Returns the exit code: 0 ok, 1 failure, 2
// usage, 130 interrupted. Call it before the program makes threads.
int run_llorch(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::cli
