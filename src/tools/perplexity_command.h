// llorch-perplexity: compares models, or quantisations of one, on a text.
#pragma once

namespace llorch::tools {

// `no_color`: the value of NO_COLOR, null when unset. 0: all models were scored; 1: one was not,
// and the reason is on stderr; 2: usage.
int run_perplexity(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
