// A line about what downloads left behind, below lists of models. Private to cli/.
#pragma once

#include <string>

#include "cli/pool_command.h"

namespace llorch::cli {

// How much there is and what removes it; empty when there is nothing, or nobody can say.
std::string leftovers_note(const PoolContext& context);

}  // namespace llorch::cli
