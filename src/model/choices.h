// How the rows of a step that want their id alone get it. Private to model/.
#pragma once

#include <cstdint>
#include <vector>

#include "model/batch.h"

namespace llorch::model {

enum class Choice : std::uint8_t { Largest, Drawn, ByRule };

// What all of them need, and the numbers for that behind what is staged: temperatures and then
// draws, or a rule for each.
Choice stage_choices(const BatchPlan& plan, std::int64_t vocab, std::vector<std::int32_t>& staging);

}  // namespace llorch::model
