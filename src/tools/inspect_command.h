// The command line of llorch-inspect.
#pragma once

namespace llorch::tools {

// `no_color`: the value of NO_COLOR, null when unset. Returns the exit code: 0, 1 (cannot be read),
// 2 (usage).
int run_inspect(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
