// One value of a stored weight, decoded with the same operations in the same order as
// compute/dequantize does it, so that every bit agrees. One struct per type: kElems values in
// kBytes bytes, at(block, i) is value i. Compiles as plain C++ too. Layouts are described in
// dequantize.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/codebook_types.h"
#include "compute/cuda/host_device.h"
#include "tensor/dtype.h"

namespace llorch::compute::cuda {

// Rows start on the alignment of device memory and blocks have even sizes (MXFP4 apart, which is
// bytes only), so halves and plain numbers are always aligned.
template <class T>
LLORCH_HOST_DEVICE inline T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, __builtin_assume_aligned(bytes, alignof(T)), sizeof(T));
  return value;
}

LLORCH_HOST_DEVICE inline float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

LLORCH_HOST_DEVICE inline float half_from_bits(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t rest = (bits & 0x7FFFU) << 13;
  if ((bits & 0x7C00U) == 0x7C00U) return float_from_bits(sign | 0x7F800000U | rest);
  // Moves the exponent's bias from 15 to 127. A power of two: exact, for subnormal halves too.
  return float_from_bits(sign | rest) * 0x1p112F;
}

LLORCH_HOST_DEVICE inline float load_half(const std::uint8_t* bytes) {
  return half_from_bits(load<std::uint16_t>(bytes));
}

LLORCH_HOST_DEVICE inline float to_float(int value) {
  return static_cast<float>(value);
}

template <class T>
struct Number {
  static constexpr int kElems = 1;
  static constexpr int kBytes = sizeof(T);
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) {
    return static_cast<float>(load<T>(block));
  }
};

struct Bool {
  static constexpr int kElems = 1;
  static constexpr int kBytes = 1;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) {
    return *block != 0 ? 1.0F : 0.0F;
  }
};

struct F16 {
  static constexpr int kElems = 1;
  static constexpr int kBytes = 2;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) { return load_half(block); }
};

struct BF16 {
  static constexpr int kElems = 1;
  static constexpr int kBytes = 2;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) {
    return float_from_bits(static_cast<std::uint32_t>(load<std::uint16_t>(block)) << 16);
  }
};

struct F8E5M2 {
  static constexpr int kElems = 1;
  static constexpr int kBytes = 1;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) {
    return half_from_bits(static_cast<std::uint32_t>(*block) << 8);
  }
};

struct F8E4M3 {
  static constexpr int kElems = 1;
  static constexpr int kBytes = 1;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int) {
    const std::uint32_t bits = *block;
    const std::uint32_t sign = (bits & 0x80U) << 24;
    if ((bits & 0x7FU) == 0x7FU) return float_from_bits(sign | 0x7FC00000U);
    // Moves the exponent's bias from 7 to 127, as in half_from_bits.
    return float_from_bits(sign | (bits & 0x7FU) << 20) * 0x1p120F;
  }
};

// Nibble i of 32 packed as 16 bytes: the low halves come first.
LLORCH_HOST_DEVICE inline int nibble(const std::uint8_t* bytes, int i) {
  return i < 16 ? bytes[i] & 0xF : bytes[i - 16] >> 4;
}

// Bit i of 32 packed as four bytes.
LLORCH_HOST_DEVICE inline int bit(const std::uint8_t* bytes, int i) {
  return (bytes[i / 8] >> (i % 8)) & 1;
}

// Two-bit value i of 256 packed as 64 bytes: Q2_K, Q3_K and TQ2_0.
LLORCH_HOST_DEVICE inline int bit_pair(const std::uint8_t* bytes, int i) {
  return (bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

struct Q4_0 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 18;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    return to_float(nibble(block + 2, i) - 8) * load_half(block);
  }
};

struct Q4_1 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 20;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    return to_float(nibble(block + 4, i)) * load_half(block) + load_half(block + 2);
  }
};

struct Q5_0 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 22;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int quant = nibble(block + 6, i) | (bit(block + 2, i) << 4);
    return to_float(quant - 16) * load_half(block);
  }
};

struct Q5_1 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 24;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int quant = nibble(block + 8, i) | (bit(block + 4, i) << 4);
    return to_float(quant) * load_half(block) + load_half(block + 2);
  }
};

struct Q8_0 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 34;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    return to_float(load<std::int8_t>(block + 2 + i)) * load_half(block);
  }
};

struct Q2_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 84;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int scale = block[i / 16];
    const float step = load_half(block + 80) * to_float(scale & 0xF);
    const float min = load_half(block + 82) * to_float(scale >> 4);
    return step * to_float(bit_pair(block + 16, i)) - min;
  }
};

struct Q3_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 110;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const std::uint8_t* packed = block + 96;
    const int group = i / 16;
    const int low = group < 8 ? packed[group] & 0xF : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float step = load_half(block + 108) * to_float((low | (high << 4)) - 32);
    const int third = (block[i % 32] >> (i / 32)) & 1;
    return step * to_float(bit_pair(block + 32, i) - (third != 0 ? 0 : 4));
  }
};

// The value `quant` of group 0..7 in a block that begins as Q4_K and Q5_K do.
LLORCH_HOST_DEVICE inline float scale_and_shift(const std::uint8_t* block, int group, int quant) {
  const std::uint8_t* packed = block + 4;
  int scale = packed[group] & 63;
  int min = packed[group + 4] & 63;
  if (group >= 4) {
    scale = (packed[group + 4] & 0xF) | ((packed[group - 4] >> 6) << 4);
    min = (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4);
  }
  const float step = load_half(block) * to_float(scale);
  return step * to_float(quant) - load_half(block + 2) * to_float(min);
}

struct Q4_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 144;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int group = i / 32;
    const int quant = (block[16 + group / 2 * 32 + i % 32] >> (group % 2 * 4)) & 0xF;
    return scale_and_shift(block, group, quant);
  }
};

struct Q5_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 176;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int group = i / 32;
    const int low = (block[48 + group / 2 * 32 + i % 32] >> (group % 2 * 4)) & 0xF;
    const int fifth = (block[16 + i % 32] >> group) & 1;
    return scale_and_shift(block, group, low | (fifth << 4));
  }
};

struct Q6_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 210;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int low = (block[half * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4)) & 0xF;
    const int high = (block[128 + half * 32 + i % 32] >> (quarter * 2)) & 3;
    const int scale = load<std::int8_t>(block + 192 + i / 16);
    return load_half(block + 208) * to_float(scale) * to_float((low | (high << 4)) - 32);
  }
};

LLORCH_HOST_DEVICE inline int iq4_level(int index) {
  constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
  return kLevels[index];
}

struct IQ4_NL {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 18;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    return load_half(block) * to_float(iq4_level(nibble(block + 2, i)));
  }
};

struct IQ4_XS {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 136;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const int group = i / 32;
    const int low = (block[4 + group / 2] >> (group % 2 * 4)) & 0xF;
    const int high = (load<std::uint16_t>(block + 2) >> (group * 2)) & 3;
    const float step = load_half(block) * to_float((low | (high << 4)) - 32);
    return step * to_float(iq4_level(nibble(block + 8 + group * 16, i % 32)));
  }
};

struct TQ1_0 {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 54;
  // Three runs of bytes with five, five and four ternary digits each; digit n of a whole run comes
  // before digit n + 1 of any of its bytes.
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    int packed = 0;
    int digit = 0;
    if (i < 160) {
      packed = block[i % 32];
      digit = i / 32;
    } else if (i < 240) {
      packed = block[32 + i % 16];
      digit = (i - 160) / 16;
    } else {
      packed = block[48 + i % 4];
      digit = (i - 240) / 4;
    }
    for (; digit > 0; --digit) packed = (packed * 3) & 0xFF;
    return to_float((packed * 3 >> 8) - 1) * load_half(block + 52);
  }
};

struct TQ2_0 {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 66;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    return to_float(bit_pair(block, i) - 1) * load_half(block + 64);
  }
};

struct MXFP4 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 17;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const std::uint32_t e = block[0];
    const float half_scale = float_from_bits(e < 2 ? 0x00200000U << e : (e - 1U) << 23);
    return to_float(fp4_level(nibble(block + 1, i))) * half_scale;
  }
};

struct NVFP4 {
  static constexpr int kElems = 64;
  static constexpr int kBytes = 36;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const std::uint8_t pair = block[4 + i / 16 * 8 + i % 8];
    const int level = fp4_level(i % 16 < 8 ? pair & 0xF : pair >> 4);
    return to_float(level) * nvfp4_half_scale(block[i / 16]);
  }
};

template <class Type>
struct Codebook {
  static constexpr int kElems = 256;
  static constexpr int kBytes = Type::kBytes;
  LLORCH_HOST_DEVICE static float at(const std::uint8_t* block, int i) {
    const float d = half_from_bits(Type::scale_bits(block));
    return codebook_value<Type>(Type::eight(block, d, i / 8), i % 8);
  }
};

// As with_decoder, for types whose numbers stand alone.
template <class Function>
bool with_plain_decoder(tensor::DType dtype, Function&& function) {
  using tensor::DType;
  switch (dtype) {
    case DType::F64:
      return function(Number<double>{}), true;
    case DType::F32:
      return function(Number<float>{}), true;
    case DType::F16:
      return function(F16{}), true;
    case DType::BF16:
      return function(BF16{}), true;
    case DType::F8E4M3:
      return function(F8E4M3{}), true;
    case DType::F8E5M2:
      return function(F8E5M2{}), true;
    case DType::I8:
      return function(Number<std::int8_t>{}), true;
    case DType::I16:
      return function(Number<std::int16_t>{}), true;
    case DType::I32:
      return function(Number<std::int32_t>{}), true;
    case DType::I64:
      return function(Number<std::int64_t>{}), true;
    case DType::U8:
      return function(Number<std::uint8_t>{}), true;
    case DType::U16:
      return function(Number<std::uint16_t>{}), true;
    case DType::U32:
      return function(Number<std::uint32_t>{}), true;
    case DType::U64:
      return function(Number<std::uint64_t>{}), true;
    case DType::Bool:
      return function(Bool{}), true;
    default:
      return false;
  }
}

// Calls function(Decoder{}) for the type's decoder. False, without a call, where there is none; the
// types are those of compute::can_dequantize.
template <class Function>
bool with_decoder(tensor::DType dtype, Function&& function) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0:
      return function(Q4_0{}), true;
    case DType::Q4_1:
      return function(Q4_1{}), true;
    case DType::Q5_0:
      return function(Q5_0{}), true;
    case DType::Q5_1:
      return function(Q5_1{}), true;
    case DType::Q8_0:
      return function(Q8_0{}), true;
    case DType::Q2_K:
      return function(Q2_K{}), true;
    case DType::Q3_K:
      return function(Q3_K{}), true;
    case DType::Q4_K:
      return function(Q4_K{}), true;
    case DType::Q5_K:
      return function(Q5_K{}), true;
    case DType::Q6_K:
      return function(Q6_K{}), true;
    case DType::IQ4_NL:
      return function(IQ4_NL{}), true;
    case DType::IQ4_XS:
      return function(IQ4_XS{}), true;
    case DType::TQ1_0:
      return function(TQ1_0{}), true;
    case DType::TQ2_0:
      return function(TQ2_0{}), true;
    case DType::MXFP4:
      return function(MXFP4{}), true;
    case DType::NVFP4:
      return function(NVFP4{}), true;
    case DType::IQ1_S:
      return function(Codebook<IQ1_S>{}), true;
    case DType::IQ1_M:
      return function(Codebook<IQ1_M>{}), true;
    case DType::IQ2_XXS:
      return function(Codebook<IQ2_XXS>{}), true;
    case DType::IQ2_XS:
      return function(Codebook<IQ2_XS>{}), true;
    case DType::IQ2_S:
      return function(Codebook<IQ2_S>{}), true;
    case DType::IQ3_XXS:
      return function(Codebook<IQ3_XXS>{}), true;
    case DType::IQ3_S:
      return function(Codebook<IQ3_S>{}), true;
    default:  // as dequantize.cc
      return with_plain_decoder(dtype, std::forward<Function>(function));
  }
}

}  // namespace llorch::compute::cuda
