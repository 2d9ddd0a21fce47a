// Rotary positions: the scaling recipes that metadata names, turned into frequencies.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/config.h"

namespace llorch::model {

// An error names the number that makes no sense.
Result<RopeConfig> make_rope(const RopeParameters& parameters, compute::RopeStyle style);

// What was done to the rotation and why, in a sentence for logs: which of LongRoPE's factors, how
// far YaRN stretches. Empty where nothing was. `context`: the longest sequence that will be run.
std::string describe_scaling(const RopeConfig& rope, std::int32_t context);

}  // namespace llorch::model
