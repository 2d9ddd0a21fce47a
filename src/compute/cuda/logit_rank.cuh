// A logit and its place as one number to compare: the larger logit first, the lower place among
// equals.
#pragma once

#include <cstdint>

namespace llorch::compute::cuda {

inline constexpr unsigned long long kNoNumber = ~0ULL;  // NaN or +infinity: above all

// A number as bits that ascend as numbers do; zeros are equal.
__device__ inline std::uint32_t key_of(float value) {
  const std::uint32_t word = __float_as_uint(value == 0.0F ? 0.0F : value);
  return (word & 0x80000000U) != 0 ? ~word : word | 0x80000000U;
}
__device__ inline float value_of_key(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

__device__ inline unsigned long long rank_of(float value, std::int64_t place) {
  if (!(value < INFINITY)) return kNoNumber;
  return (static_cast<unsigned long long>(key_of(value)) << 32) |
         ~static_cast<std::uint32_t>(place);
}
__device__ inline float value_of(unsigned long long rank) {
  return value_of_key(static_cast<std::uint32_t>(rank >> 32));
}
__device__ inline std::int32_t place_of(unsigned long long rank) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(rank));
}
// Whether the best of a row may be chosen: all are numbers, and not all -infinity.
__device__ inline bool is_token(unsigned long long best) {
  return best != kNoNumber && value_of(best) != -INFINITY;
}

}  // namespace llorch::compute::cuda
