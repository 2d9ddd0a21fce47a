#include "compute/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "compute/quantize_k.h"
#include "tensor/half.h"

// Rounding is part of the formats: this file is compiled with -ffp-contract=off.
namespace llorch::compute {
namespace {

using tensor::DType;

constexpr int kBlock = 32;

// Encodes one block of finite values; false when they are beyond the reach of the type.
using BlockEncoder = bool (*)(const float* values, std::uint8_t* block);

// Stores the half nearest to `value`; false when that is infinite.
bool store_half(float value, std::uint8_t* to) {
  const std::uint16_t bits = tensor::float_to_half(value);
  std::memcpy(to, &bits, sizeof bits);
  return (bits & 0x7C00U) != 0x7C00U;
}

// 1 / step; 0 where the step is 0 or so small that its inverse is no number (it is 0 as a half as
// well).
float inverse(float step) {
  const float result = 1.0F / step;
  return std::isfinite(result) ? result : 0.0F;
}

bool encode_f32(const float* values, std::uint8_t* block) {
  std::memcpy(block, values, sizeof(float));
  return true;
}
bool encode_f16(const float* values, std::uint8_t* block) {
  return store_half(*values, block);
}
bool encode_bf16(const float* values, std::uint8_t* block) {
  const std::uint16_t bits = tensor::float_to_bfloat16(*values);
  std::memcpy(block, &bits, sizeof bits);
  return (bits & 0x7F80U) != 0x7F80U;
}

// The value farthest from zero, with its sign; the first of equals.
float extreme(const float* values) {
  float best = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::abs(values[i]) > std::abs(best)) best = values[i];
  }
  return best;
}

using Quants = std::array<std::uint8_t, kBlock>;

// Truncates each (value - offset) / step + bias to 0..highest.
Quants round_block(const float* values, float offset, float step, float bias, int highest) {
  const float scale = inverse(step);
  Quants quants;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float place = (values[i] - offset) * scale + bias;
    quants[i] = static_cast<std::uint8_t>(std::clamp(static_cast<int>(place), 0, highest));
  }
  return quants;
}

// Value i in the low, value i + 16 in the high nibble of byte i.
void pack_nibbles(const Quants& quants, std::uint8_t* to) {
  for (std::size_t i = 0; i < kBlock / 2; ++i)
    to[i] = static_cast<std::uint8_t>((quants[i] & 0xF) | (quants[i + 16] & 0xF) << 4);
}

void pack_fifth_bits(const Quants& quants, std::uint8_t* to) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kBlock; ++i) bits |= static_cast<std::uint32_t>(quants[i] >> 4) << i;
  std::memcpy(to, &bits, sizeof bits);
}

bool encode_q4_0(const float* values, std::uint8_t* block) {
  const float step = extreme(values) / -8.0F;
  pack_nibbles(round_block(values, 0, step, 8.5F, 15), block + 2);
  return store_half(step, block);
}

bool encode_q5_0(const float* values, std::uint8_t* block) {
  const float step = extreme(values) / -16.0F;
  const Quants quants = round_block(values, 0, step, 16.5F, 31);
  pack_fifth_bits(quants, block + 2);
  pack_nibbles(quants, block + 6);
  return store_half(step, block);
}

bool encode_q4_1(const float* values, std::uint8_t* block) {
  const auto [low, high] = std::minmax_element(values, values + kBlock);
  const float step = (*high - *low) / 15.0F;
  if (!std::isfinite(step)) return false;
  pack_nibbles(round_block(values, *low, step, 0.5F, 15), block + 4);
  return store_half(step, block) && store_half(*low, block + 2);
}

bool encode_q5_1(const float* values, std::uint8_t* block) {
  const auto [low, high] = std::minmax_element(values, values + kBlock);
  const float step = (*high - *low) / 31.0F;
  if (!std::isfinite(step)) return false;
  const Quants quants = round_block(values, *low, step, 0.5F, 31);
  pack_fifth_bits(quants, block + 4);
  pack_nibbles(quants, block + 8);
  return store_half(step, block) && store_half(*low, block + 2);
}

bool encode_q8_0(const float* values, std::uint8_t* block) {
  const float step = std::abs(extreme(values)) / 127.0F;
  const float scale = inverse(step);
  for (int i = 0; i < kBlock; ++i) {
    const auto quant = static_cast<std::int8_t>(std::round(values[i] * scale));
    std::memcpy(block + 2 + i, &quant, 1);
  }
  return store_half(step, block);
}

BlockEncoder block_encoder(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return encode_f32;
    case DType::F16:
      return encode_f16;
    case DType::BF16:
      return encode_bf16;
    case DType::Q4_0:
      return encode_q4_0;
    case DType::Q4_1:
      return encode_q4_1;
    case DType::Q5_0:
      return encode_q5_0;
    case DType::Q5_1:
      return encode_q5_1;
    case DType::Q8_0:
      return encode_q8_0;
    case DType::Q4_K:
      return encode_q4_k;
    case DType::Q5_K:
      return encode_q5_k;
    case DType::Q6_K:
      return encode_q6_k;
    default:
      return nullptr;
  }
}

// Looks at all values at once first, which the compiler turns into vector code.
Status check_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000U;  // all ones: infinity or NaN
  bool finite = true;
  for (const float value : values)
    finite &= (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
  if (finite) return ok_status();
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  return Error{ErrorCode::InvalidArgument,
               fmt::format("value {} is {}, not a finite number", bad - values.begin(), *bad)};
}

}  // namespace

Status quantize(DType dtype, std::span<const float> values, std::span<std::byte> blocks) {
  const BlockEncoder encode = block_encoder(dtype);
  if (encode == nullptr) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("writing {} is not supported", tensor::name(dtype))};
  }
  const auto expected = tensor::storage_bytes(dtype, static_cast<std::int64_t>(values.size()));
  if (!expected || *expected != static_cast<std::int64_t>(blocks.size())) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} values of {} do not fill {} bytes exactly", values.size(),
                             tensor::name(dtype), blocks.size())};
  }
  if (Status finite = check_finite(values); !finite.ok()) return finite;
  const tensor::DTypeInfo& type = tensor::info(dtype);
  auto* to = reinterpret_cast<std::uint8_t*>(blocks.data());
  const auto block_elems = static_cast<std::size_t>(type.block_elems);
  for (std::size_t i = 0; i < values.size(); i += block_elems, to += type.block_bytes) {
    if (encode(values.data() + i, to)) continue;
    const auto block = values.subspan(i, block_elems);
    const auto largest = std::max_element(
        block.begin(), block.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("value {} is {}, which is beyond the reach of {}; F32 holds it",
                    i + static_cast<std::size_t>(largest - block.begin()), *largest, type.name)};
  }
  return ok_status();
}

}  // namespace llorch::compute
