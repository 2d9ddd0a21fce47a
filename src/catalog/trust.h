// Before a model is used: is it still the one that was verified, and what does that rest on?
#pragma once

#include <stop_token>
#include <string>

#include "base/home.h"
#include "base/result.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

// A sentence that says what was looked at, for whoever is told that the model runs. Files that are
// unchanged since their hashes were seen to be right are believed after the first chunk and a few
// drawn ones were hashed again; small ones that changed are hashed whole at once, and the catalog
// then knows them as verified. Everything else is a Conflict (NotFound for files that are gone)
// that names the command to run: damaged, changed and large, changed and never hashed. Blocks on
// the disk for a second or so.
Result<std::string> trust_model(const base::Home& home, const contract::ModelEntry& entry,
                                std::stop_token stop = {});

}  // namespace llorch::catalog
