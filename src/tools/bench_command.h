// llorch-bench: how fast models run here, beside the machine's limits.
#pragma once

namespace llorch::tools {

// `no_color`: the value of NO_COLOR, null when unset. 0: all was measured; 1: something was not,
// and the reason is on stderr; 2: usage.
int run_bench_command(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
