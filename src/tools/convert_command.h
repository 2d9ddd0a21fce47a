// llorch-convert: models of any format to GGUF, quantised.
#pragma once

namespace llorch::tools {

// `no_color`: the value of NO_COLOR, null when unset. 0: written; 1: not, and the reason is on
// stderr; 2: usage.
int run_convert(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
