// What choose means, step by step: the oracle of kernels.
#pragma once

#include <cstdint>
#include <span>

#include "compute/choose.h"

namespace llorch::compute {

// `best` is the place of the largest; all of x are numbers.
std::int32_t choose_token(std::span<const float> x, const ChoiceRule& rule, std::int32_t best);

// The token that a draw falls on (DrawArgs); `max` is the largest of x, all of which are numbers.
std::int32_t draw_token(std::span<const float> x, float max, float temperature, std::uint64_t draw);

// The weight of a logit as whole units of 2^-40, one rounding for each operation as written.
std::uint64_t draw_weight(float x, float max, float factor);
float draw_factor(float temperature);

}  // namespace llorch::compute
