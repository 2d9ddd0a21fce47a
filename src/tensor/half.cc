#include "tensor/half.h"

namespace llorch::tensor {

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: shift the leading one into place, lowering the exponent as we go.
  std::uint32_t float_exponent = 113;
  while ((mantissa & 0x400U) == 0) {
    mantissa <<= 1;
    --float_exponent;
  }
  return std::bit_cast<float>(sign | (float_exponent << 23) | ((mantissa & 0x3FFU) << 13));
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN: keep it quiet, keep its top payload bits
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U)
    return static_cast<std::uint16_t>(sign | 0x7C00U);                   // rounds to infinity
  if (magnitude < 0x33000001U) return static_cast<std::uint16_t>(sign);  // rounds to zero
  const std::uint32_t exponent = magnitude >> 23;
  std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  // Bits dropped on the way to 10 mantissa bits: 13 for normal results, more for subnormal ones.
  const std::uint32_t shift = exponent >= 113 ? 13 : 126 - exponent;
  std::uint32_t half = mantissa >> shift;
  if (exponent >= 113) half += (exponent - 113) << 10;
  const std::uint32_t remainder = mantissa & ((1U << shift) - 1U);
  const std::uint32_t halfway = 1U << (shift - 1);
  if (remainder > halfway || (remainder == halfway && (half & 1U) != 0)) ++half;
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t float_to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  bits += 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace llorch::tensor
