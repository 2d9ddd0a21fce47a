// Models that a fresh pool can fetch by a short name, and the one that is part of the program.
#pragma once

#include <vector>

#include "contract/model_entry.h"

namespace llorch::catalog {

// Ids, repos, licences and sizes as published; `downloaded` is false and nothing else is claimed.
// The built-in model comes first, with facts read from its own bytes, downloaded, path "builtin".
std::vector<contract::ModelEntry> known_models();

}  // namespace llorch::catalog
