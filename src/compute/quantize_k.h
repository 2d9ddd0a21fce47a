// The block types whose scales are searched for. Private to compute/.
#pragma once

#include <cstdint>

namespace llorch::compute {

// One block of 256 finite values each. False when a scale does not fit into a half; the block is
// then unusable.
bool encode_q4_k(const float* values, std::uint8_t* block);
bool encode_q5_k(const float* values, std::uint8_t* block);
bool encode_q6_k(const float* values, std::uint8_t* block);

}  // namespace llorch::compute
