// What the weight types with code books and with four-bit floats have in common on every backend;
// compiles as plain C++ and for a device.
//
// The values of IQ1, IQ2 and IQ3 are entries of a code book. A block holds 256 of them, taken eight
// at a time: a code with the eight levels, their signs, a step.
//
// Each type says: kBytes of a block, scale_bits(block) (the half that scales it), eight(block, d,
// n) (values 8n..8n + 7, with that half as a float), level(number) (what a level stands for).
#pragma once

#include <cstdint>

#include "compute/codebooks.h"

namespace llorch::compute {

struct Eight {
  std::uint32_t code = 0;   // level of value i at bits i * kLevelBits
  std::uint32_t signs = 0;  // bit i: value i is negative
  float step = 0.0F;
  float shift = 0.0F;  // added to the level before it is multiplied
};

// Little-endian words at any address.
LLORCH_HOST_DEVICE inline std::uint32_t half_word(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8;
}
LLORCH_HOST_DEVICE inline std::uint32_t word(const std::uint8_t* bytes) {
  return half_word(bytes) | half_word(bytes + 2) << 16;
}

// Seven signs are stored; the eighth makes the number of negative ones even.
LLORCH_HOST_DEVICE inline std::uint32_t eight_signs(std::uint32_t seven) {
  std::uint32_t parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1U) << 7;
}

LLORCH_HOST_DEVICE inline float half_steps(float d, std::uint32_t scale, float unit) {
  return d * (0.5F + static_cast<float>(scale)) * unit;
}
LLORCH_HOST_DEVICE inline float odd_steps(float d, std::uint32_t scale) {
  return d * static_cast<float>(2 * scale + 1);
}

struct TwoBitLevels {
  static constexpr int kLevelBits = 2;
  LLORCH_HOST_DEVICE static int level(int number) { return 8 + 17 * number + (number >> 1); }
  LLORCH_HOST_DEVICE static std::uint32_t scale_bits(const std::uint8_t* block) {
    return half_word(block);
  }
};

// half d | 8 groups of 32 values: 4 bytes of codes, then a word of 4 x 7 signs and a scale.
struct IQ2_XXS : TwoBitLevels {
  static constexpr int kBytes = 66;
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint8_t* group = block + 2 + n / 4 * 8;
    const std::uint32_t rest = word(group + 4);
    return {iq2_xxs_code(group[n % 4]), eight_signs(rest >> (n % 4 * 7) & 127U),
            half_steps(d, rest >> 28, 0.25F), 0.0F};
  }
};

// half d | 32 half words (9 bits of code, 7 signs) | 8 bytes of scales for 16 values each.
struct IQ2_XS : TwoBitLevels {
  static constexpr int kBytes = 74;
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint32_t packed = half_word(block + 2 + n * 2);
    const std::uint32_t scale = block[66 + n / 4] >> (n % 4 / 2 * 4) & 0xFU;
    return {iq2_xs_code(packed & 511U), eight_signs(packed >> 9), half_steps(d, scale, 0.25F),
            0.0F};
  }
};

// half d | 32 low bytes of codes | 32 bytes of signs | 8 bytes: two upper bits of each code | 8
// bytes of scales for 16 values each.
struct IQ2_S : TwoBitLevels {
  static constexpr int kBytes = 82;
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint32_t high = block[66 + n / 4] >> (n % 4 * 2) & 3U;
    const std::uint32_t scale = block[74 + n / 4] >> (n % 4 / 2 * 4) & 0xFU;
    return {iq2_s_code(block[2 + n] | high << 8), block[34 + n], half_steps(d, scale, 0.25F), 0.0F};
  }
};

// half d | 64 bytes of codes for 4 values each | 8 words of 4 x 7 signs and a scale.
struct IQ3_XXS {
  static constexpr int kBytes = 98;
  static constexpr int kLevelBits = 3;
  LLORCH_HOST_DEVICE static int level(int number) { return 4 + 8 * number + (number + 1) / 8 * 2; }
  LLORCH_HOST_DEVICE static std::uint32_t scale_bits(const std::uint8_t* block) {
    return half_word(block);
  }
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint8_t* codes = block + 2 + n * 2;
    const std::uint32_t rest = word(block + 66 + n / 4 * 4);
    return {iq3_xxs_code(codes[0]) | iq3_xxs_code(codes[1]) << 12,
            eight_signs(rest >> (n % 4 * 7) & 127U), half_steps(d, rest >> 28, 0.5F), 0.0F};
  }
};

// half d | 64 low bytes of codes for 4 values each | 8 bytes: the ninth bit of each | 32 bytes of
// signs | 4 bytes of scales for 32 values each.
struct IQ3_S {
  static constexpr int kBytes = 110;
  static constexpr int kLevelBits = 3;
  LLORCH_HOST_DEVICE static int level(int number) { return 2 * number + 1; }
  LLORCH_HOST_DEVICE static std::uint32_t scale_bits(const std::uint8_t* block) {
    return half_word(block);
  }
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint8_t* codes = block + 2 + n * 2;
    const std::uint32_t ninth = block[66 + n / 4] >> (n % 4 * 2);
    const std::uint32_t scale = block[106 + n / 8] >> (n / 4 % 2 * 4) & 0xFU;
    return {iq3_s_code(codes[0] | (ninth & 1U) << 8) | iq3_s_code(codes[1] | (ninth & 2U) << 7)
                                                           << 12,
            block[74 + n], odd_steps(d, scale), 0.0F};
  }
};

struct TernaryLevels {
  static constexpr int kLevelBits = 2;
  static constexpr float kShift = 0.125F;
  LLORCH_HOST_DEVICE static int level(int number) { return number - 1; }
};

// half d | 32 low bytes of codes | 8 half words for 32 values each: 4 x 3 upper bits of codes, a
// scale, the shift's sign.
struct IQ1_S : TernaryLevels {
  static constexpr int kBytes = 50;
  LLORCH_HOST_DEVICE static std::uint32_t scale_bits(const std::uint8_t* block) {
    return half_word(block);
  }
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint32_t rest = half_word(block + 34 + n / 4 * 2);
    const std::uint32_t high = rest >> (n % 4 * 3) & 7U;
    return {iq1_code(block[2 + n] | high << 8), 0, odd_steps(d, rest >> 12 & 7U),
            (rest & 0x8000U) != 0 ? -kShift : kShift};
  }
};

// 32 low bytes of codes | 16 bytes of nibbles: three upper bits of a code, the shift's sign | 4
// half words: four scales of 3 bits for 16 values each, and four bits of the half d.
struct IQ1_M : TernaryLevels {
  static constexpr int kBytes = 56;
  LLORCH_HOST_DEVICE static std::uint32_t scale_bits(const std::uint8_t* block) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= half_word(block + 48 + i * 2) >> 12 << (i * 4);
    return bits;
  }
  LLORCH_HOST_DEVICE static Eight eight(const std::uint8_t* block, float d, int n) {
    const std::uint32_t nibble = block[32 + n / 2] >> (n % 2 * 4) & 0xFU;
    const std::uint32_t scale = half_word(block + 48 + n / 8 * 2) >> (n % 8 / 2 * 3) & 7U;
    return {iq1_code(block[n] | (nibble & 7U) << 8), 0, odd_steps(d, scale),
            (nibble & 8U) != 0 ? -kShift : kShift};
  }
};

// The sixteen E2M1 values of MXFP4 and NVFP4, doubled, so that they are whole numbers.
LLORCH_HOST_DEVICE inline int fp4_level(int nibble) {
  static constexpr std::int8_t kLevels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
  return kLevels[nibble];
}

// Half of an E8M0 number, 2^(bits - 127); the two smallest are subnormal floats.
LLORCH_HOST_DEVICE inline std::uint32_t mxfp4_half_scale_bits(std::uint32_t bits) {
  return bits < 2 ? 0x00200000U << bits : (bits - 1U) << 23;
}

// Half of an E4M3 number without a sign; what would be NaN is zero.
LLORCH_HOST_DEVICE inline float nvfp4_half_scale(std::uint32_t bits) {
  if (bits == 0x7FU) return 0.0F;
  const std::uint32_t exponent = bits >> 3 & 0xFU;
  const auto mantissa = static_cast<float>(bits & 7U);
  if (exponent == 0) return mantissa * 0x1p-10F;
  return (8.0F + mantissa) * static_cast<float>(1U << exponent) * 0x1p-11F;
}

// Value i of eight.
template <class Type>
LLORCH_HOST_DEVICE inline float codebook_value(const Eight& eight, int i) {
  constexpr std::uint32_t kMask = (1U << Type::kLevelBits) - 1U;
  const int number = static_cast<int>(eight.code >> (i * Type::kLevelBits) & kMask);
  const float value = eight.step * (static_cast<float>(Type::level(number)) + eight.shift);
  return (eight.signs >> i & 1U) != 0 ? -value : value;
}

}  // namespace llorch::compute
