// WeightForm::Half as its definition reads, one value at a time.
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/dequantize.h"
#include "compute/input_form.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// To the nearest half at once: a float on the way must not be a tie that the number is not.
float nearest_half(double value) {
  auto near = static_cast<float>(value);
  if (static_cast<double>(near) != value && std::isfinite(near)) {
    if (std::abs(static_cast<double>(near)) > std::abs(value)) near = std::nextafter(near, 0.0F);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &near, sizeof(bits));
    bits |= 1U;
    std::memcpy(&near, &bits, sizeof(bits));
  }
  return tensor::half_to_float(tensor::float_to_half(near));
}

float half_at(const std::uint8_t* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return tensor::half_to_float(bits);
}

struct Affine {
  int quant = 0;
  float scale = 0;   // a half
  float offset = 0;  // likewise
};

// Value i of a block of Q4_1 or Q5_1.
Affine simple(const std::uint8_t* block, int bits, int i) {
  const int nibbles = bits == 5 ? 8 : 4;
  const std::uint8_t byte = block[nibbles + i % 16];
  int quant = i < 16 ? byte % 16 : byte / 16;
  if (bits == 5) quant += 16 * (block[4 + i / 8] >> (i % 8) & 1);
  return {quant, half_at(block), half_at(block + 2)};
}

// Value i of a block of Q4_K or Q5_K.
Affine of_k(const std::uint8_t* block, int bits, int i) {
  const std::uint8_t* packed = block + 4;
  const int group = i / 32;
  int scale = 0;
  int minimum = 0;
  if (group < 4) {
    scale = packed[group] % 64;
    minimum = packed[group + 4] % 64;
  } else {
    scale = packed[group + 4] % 16 + packed[group - 4] / 64 * 16;
    minimum = packed[group + 4] / 16 + packed[group] / 64 * 16;
  }
  const std::uint8_t* nibbles = block + (bits == 5 ? 48 : 16);
  const std::uint8_t byte = nibbles[group / 2 * 32 + i % 32];
  int quant = group % 2 == 0 ? byte % 16 : byte / 16;
  if (bits == 5) quant += 16 * (block[16 + i % 32] >> group & 1);
  return {quant, nearest_half(double{half_at(block)} * scale),
          -nearest_half(double{half_at(block + 2)} * minimum)};
}

Affine of_q6_k(const std::uint8_t* block, int i) {
  const int quarter = i % 128 / 32;
  const std::uint8_t low = block[i / 128 * 64 + quarter % 2 * 32 + i % 32];
  const int upper = block[128 + i / 128 * 32 + i % 32] >> (2 * quarter) & 3;
  const auto scale = static_cast<std::int8_t>(block[192 + i / 16]);
  return {(quarter < 2 ? low % 16 : low / 16) + 16 * upper - 32,
          nearest_half(double{half_at(block + 208)} * scale), 0};
}

Affine affine_at(DType dtype, const std::uint8_t* block, int i) {
  switch (dtype) {
    case DType::Q4_1:
      return simple(block, 4, i);
    case DType::Q5_1:
      return simple(block, 5, i);
    case DType::Q4_K:
      return of_k(block, 4, i);
    case DType::Q5_K:
      return of_k(block, 5, i);
    default:
      CHECK(dtype == DType::Q6_K);
      return of_q6_k(block, i);
  }
}

}  // namespace

bool can_round_weights(DType dtype) {
  switch (dtype) {
    case DType::F16:
    case DType::BF16:
    case DType::Q8_0:
    case DType::Q4_0:
    case DType::Q4_1:
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q6_K:
      return true;
    default:
      return false;
  }
}

void round_weights(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  switch (dtype) {
    case DType::F16:
      CHECK(dequantize(dtype, blocks, out).ok());
      return;
    case DType::BF16:
    case DType::Q8_0:
    case DType::Q4_0:
    case DType::Q5_0:  // a half times a small whole number is a float
      CHECK(dequantize(dtype, blocks, out).ok());
      for (float& value : out) value = nearest_half(value);
      return;
    default:
      break;
  }
  const tensor::DTypeInfo& type = tensor::info(dtype);
  const auto elems = static_cast<std::size_t>(type.block_elems);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(blocks.data());
  CHECK(out.size() % elems == 0 &&
        blocks.size() == out.size() / elems * static_cast<std::size_t>(type.block_bytes));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint8_t* block = bytes + i / elems * static_cast<std::size_t>(type.block_bytes);
    const Affine value = affine_at(dtype, block, static_cast<int>(i % elems));
    out[i] = nearest_half(double{value.scale} * value.quant + double{value.offset});
  }
}

}  // namespace llorch::compute
