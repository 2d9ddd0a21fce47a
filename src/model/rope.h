// Rotary positions: the scaling recipes that metadata names, turned into frequencies.
#pragma once

#include "base/result.h"
#include "model/config.h"

namespace llorch::model {

// An error names the number that makes no sense.
Result<RopeConfig> make_rope(const RopeParameters& parameters, compute::RopeStyle style);

}  // namespace llorch::model
