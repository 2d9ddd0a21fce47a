// A model that somebody named: where it is, or why it cannot be used now. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fleet/fleet.h"

namespace llorch::orchestrator {

struct FoundModel {
  fleet::ModelHash hash;
  std::string name;  // as the catalogs call it
};

struct ModelSearch {
  std::optional<FoundModel> found;  // or
  Error error;
  double retry_after_ms = 0;  // 0: trying again is useless
};

// Whether this key is for a model of that name. Nobody's key is for all.
bool may_use_model(const fleet::Fleet& fleet, fleet::KeyId key, std::string_view model);

// Unavailable: it is, or was when they were last seen, on hosts that are not connected, which the
// message names; or a host that may have it is still coming up. NotFound: nobody knows it, with the
// nearest names; also where the key may not use it and no host that is there has it.
ModelSearch find_model_by_name(const fleet::Fleet& fleet, std::string_view name, fleet::KeyId key);

}  // namespace llorch::orchestrator
