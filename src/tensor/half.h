// IEEE half and bfloat16 as bit patterns, converted exactly (to float) or to nearest even (from
// float).
#pragma once

#include <bit>
#include <cstdint>

namespace llorch::tensor {

float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
std::uint16_t float_to_bfloat16(float value);

}  // namespace llorch::tensor
