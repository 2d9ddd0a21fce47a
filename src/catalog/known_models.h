// Models that a fresh pool can fetch by a short name, and the one that every worker has.
#pragma once

#include <vector>

#include "contract/model_entry.h"

namespace llorch::catalog {

// The model that is part of the workers, as a test reads it from its own bytes; path "builtin".
// Programs that compute nothing do not carry it.
contract::ModelEntry builtin_entry();

// The built-in model first. Of the others what their publishers say: repository, licence, size,
// architecture and quantisation, and what here can run that; `downloaded` is false and nothing else
// is claimed.
std::vector<contract::ModelEntry> known_models();

}  // namespace llorch::catalog
