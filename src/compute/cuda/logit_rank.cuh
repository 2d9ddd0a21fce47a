// A logit and its place as one number to compare: the larger logit first, the lower place among
// equals.
#pragma once

#include <cstdint>

namespace llorch::compute::cuda {

inline constexpr unsigned long long kNoNumber = ~0ULL;  // NaN or +infinity: above all

__device__ inline unsigned long long rank_of(float value, std::int64_t place) {
  if (!(value < INFINITY)) return kNoNumber;
  const std::uint32_t word = __float_as_uint(value == 0.0F ? 0.0F : value);  // zeros are equal
  const std::uint32_t ordered = (word & 0x80000000U) != 0 ? ~word : word | 0x80000000U;
  return (static_cast<unsigned long long>(ordered) << 32) | ~static_cast<std::uint32_t>(place);
}
__device__ inline float value_of(unsigned long long rank) {
  const auto ordered = static_cast<std::uint32_t>(rank >> 32);
  return __uint_as_float((ordered & 0x80000000U) != 0 ? ordered & 0x7FFFFFFFU : ~ordered);
}
__device__ inline std::int32_t place_of(unsigned long long rank) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(rank));
}
// Whether the best of a row may be chosen: all are numbers, and not all -infinity.
__device__ inline bool is_token(unsigned long long best) {
  return best != kNoNumber && value_of(best) != -INFINITY;
}

}  // namespace llorch::compute::cuda
