// What edit_logits means, logit by logit: the oracle of kernels.
#pragma once

#include <cstdint>
#include <span>

#include "compute/edit_logits.h"

namespace llorch::compute {

// `mask` is empty where every id may follow.
void edit_row(std::span<float> x, const EditRule& rule, std::span<const LogitChange> changes,
              std::span<const std::uint32_t> mask);

}  // namespace llorch::compute
