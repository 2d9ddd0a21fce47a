// Tokens without the host: those that a step has from the one before, and those that rules choose,
// of logits that were edited before.
#pragma once

#include <cstdint>

#include "compute/choose.h"
#include "compute/cuda/queue.h"
#include "compute/edit_logits.h"

namespace llorch::compute::cuda {

// Backend::fill_in_ids.
void launch_fill_in_ids(std::int32_t* ids, std::int64_t rows, const std::int32_t* found,
                        std::int64_t num_found, const Queue& queue);
// Backend::choose. `workspace`: draw_bytes(rows) of draw_layout.h.
void launch_choose(const ChooseArgs& args, void* workspace, const Queue& queue);
// Backend::edit_logits.
void launch_edit_logits(const EditLogitsArgs& args, const Queue& queue);

}  // namespace llorch::compute::cuda
