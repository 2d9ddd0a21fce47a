// The command line of llorch-tokenize.
#pragma once

namespace llorch::tools {

// `no_color`: the value of NO_COLOR, null when unset. Returns the exit code: 0, 1 (the tokenizer or
// the input cannot be read), 2 (usage).
int run_tokenize(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
