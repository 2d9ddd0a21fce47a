// llorch-checkpoints: climbs the twelve-checkpoint ladder on a model of the user's own.
#pragma once

namespace llorch::tools {

// Runs the model on the chosen backend and on the reference backend, compares the two rung by rung,
// and prints a table or JSON. `no_color`: the value of NO_COLOR, null when unset. 0: all passed; 1:
// a rung failed or the model could not be loaded; 2: usage.
int run_checkpoints(int argc, const char* const* argv, const char* no_color);

}  // namespace llorch::tools
