#include "compute/dequantize.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "compute/codebook_types.h"
#include "tensor/half.h"

// Products and sums here must round separately, as the format's reference rounds them: this file is
// compiled with -ffp-contract=off.
namespace llorch::compute {
namespace {

using tensor::DType;

template <class T>
T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float load_half(const std::uint8_t* bytes) {
  return tensor::half_to_float(load<std::uint16_t>(bytes));
}

float to_float(int value) {
  return static_cast<float>(value);
}

// Calls decode(block, out) for each block of `Bytes` bytes and `Elems` values.
template <int Elems, int Bytes, void (*decode)(const std::uint8_t*, float*)>
void each_block(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
  for (std::int64_t i = 0; i < num_blocks; ++i) decode(blocks + i * Bytes, out + i * Elems);
}

template <class T>
void decode_number(const std::uint8_t* bytes, float* out) {
  *out = static_cast<float>(load<T>(bytes));
}
void decode_bool(const std::uint8_t* bytes, float* out) {
  *out = *bytes != 0 ? 1.0F : 0.0F;
}
void decode_half(const std::uint8_t* bytes, float* out) {
  *out = load_half(bytes);
}
void decode_bfloat16(const std::uint8_t* bytes, float* out) {
  *out = tensor::bfloat16_to_float(load<std::uint16_t>(bytes));
}
// One sign, five exponent and two mantissa bits: the upper byte of a half.
void decode_f8_e5m2(const std::uint8_t* bytes, float* out) {
  *out = tensor::half_to_float(static_cast<std::uint16_t>(*bytes << 8));
}
// The "FN" flavour that SafeTensors holds: bias 7, no infinity, only all ones is NaN.
void decode_f8_e4m3(const std::uint8_t* bytes, float* out) {
  const std::uint32_t sign = (*bytes & 0x80U) << 24;
  const std::uint32_t exponent = (*bytes >> 3) & 0xFU;
  const std::uint32_t mantissa = *bytes & 0x7U;
  if (exponent == 0xF && mantissa == 0x7) {
    *out = std::bit_cast<float>(sign | 0x7FC00000U);
  } else if (exponent != 0) {
    *out = std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
  } else {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
    *out = std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
}

// half d | 16 bytes: value i in the low, value i + 16 in the high nibble, biased by 8.
void decode_q4_0(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const std::uint8_t* quants = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = to_float((quants[i] & 0xF) - 8) * d;
    out[i + 16] = to_float((quants[i] >> 4) - 8) * d;
  }
}

// half d | half m | 16 bytes of nibbles.
void decode_q4_1(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const std::uint8_t* quants = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = to_float(quants[i] & 0xF) * d + m;
    out[i + 16] = to_float(quants[i] >> 4) * d + m;
  }
}

// Value i of 32 with its fifth bit: nibbles as in Q4_0, high bits as a little-endian word.
int five_bits(const std::uint8_t* nibbles, std::uint32_t high_bits, int i) {
  const int low = i < 16 ? nibbles[i] & 0xF : nibbles[i - 16] >> 4;
  return low | (static_cast<int>((high_bits >> i) & 1U) << 4);
}

// half d | 4 bytes of high bits | 16 bytes of nibbles, biased by 16.
void decode_q5_0(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const auto high_bits = load<std::uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = to_float(five_bits(block + 6, high_bits, i) - 16) * d;
}

// half d | half m | 4 bytes of high bits | 16 bytes of nibbles.
void decode_q5_1(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const auto high_bits = load<std::uint32_t>(block + 4);
  for (int i = 0; i < 32; ++i) out[i] = to_float(five_bits(block + 8, high_bits, i)) * d + m;
}

// half d | 32 signed bytes.
void decode_q8_0(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) out[i] = to_float(load<std::int8_t>(block + 2 + i)) * d;
}

// 16 bytes (scale | min << 4) for 16 values each | 64 bytes of two-bit values | half d | half dmin.
// Each half of the block keeps value i in byte i % 32, bits 2 * (i / 32).
void decode_q2_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* scales = block;
  const std::uint8_t* quants = block + 16;
  const float d = load_half(block + 80);
  const float dmin = load_half(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int scale = scales[i / 16];
    const int quant = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const float step = d * to_float(scale & 0xF);
    const float min = dmin * to_float(scale >> 4);
    out[i] = step * to_float(quant) - min;
  }
}

// 32 bytes of third bits (bit i / 32 of byte i % 32; clear means minus four) | 64 bytes of two-bit
// values as in Q2_K | 12 bytes holding 16 six-bit scales biased by 32 | half d.
void decode_q3_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* third_bits = block;
  const std::uint8_t* quants = block + 32;
  const std::uint8_t* packed = block + 96;
  const float d = load_half(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = group < 8 ? packed[group] & 0xF : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float step = d * to_float((low | (high << 4)) - 32);
    const int quant = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const int third = (third_bits[i % 32] >> (i / 32)) & 1;
    out[i] = step * to_float(quant - (third != 0 ? 0 : 4));
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Scale and min of group 0..7 from the 12 bytes of Q4_K and Q5_K: six bits each; the upper two bits
// of groups 4..7 sit on top of groups 0..3.
ScaleMin unpack_scale_min(const std::uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 0xF) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

// half d | half dmin | 12 bytes of scales and mins for 32 values each | 128 bytes: groups 2p and 2p
// + 1 are the low and high nibbles of bytes 32p..32p + 31.
void decode_q4_k(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::uint8_t* quants = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = unpack_scale_min(block + 4, group);
    const float step = d * to_float(packed.scale);
    const float min = dmin * to_float(packed.min);
    for (int i = 0; i < 32; ++i) {
      const int quant = (quants[group / 2 * 32 + i] >> (group % 2 * 4)) & 0xF;
      out[group * 32 + i] = step * to_float(quant) - min;
    }
  }
}

// As Q4_K with 32 bytes of fifth bits (bit `group` of byte i) between the scales and the nibbles.
void decode_q5_k(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::uint8_t* fifth_bits = block + 16;
  const std::uint8_t* quants = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = unpack_scale_min(block + 4, group);
    const float step = d * to_float(packed.scale);
    const float min = dmin * to_float(packed.min);
    for (int i = 0; i < 32; ++i) {
      const int low = (quants[group / 2 * 32 + i] >> (group % 2 * 4)) & 0xF;
      const int quant = low + (((fifth_bits[i] >> group) & 1) << 4);
      out[group * 32 + i] = step * to_float(quant) - min;
    }
  }
}

// 128 bytes of low nibbles | 64 bytes of upper bit pairs | 16 signed scales for 16 values each |
// half d. In each half of the block, values 32k..32k + 31 take byte 32 (k % 2) + i, nibble k / 2,
// and bits 2k of the pair byte i; biased by 32.
void decode_q6_k(const std::uint8_t* block, float* out) {
  const float d = load_half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int low = block[half * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4) & 0xF;
    const int high = (block[128 + half * 32 + i % 32] >> (quarter * 2)) & 3;
    const std::int32_t scale{load<std::int8_t>(block + 192 + i / 16)};
    out[i] = d * to_float(scale) * to_float((low | (high << 4)) - 32);
  }
}

// The sixteen levels of the IQ4 types, spaced for normally distributed weights.
constexpr std::array<int, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

// half d | 16 bytes of nibbles that index the levels.
void decode_iq4_nl(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 16; ++i) {
    const std::uint8_t pair = block[2 + i];
    out[i] = d * to_float(kIq4Levels[pair & 0xF]);
    out[i + 16] = d * to_float(kIq4Levels[pair >> 4]);
  }
}

// half d | 2 bytes: upper two bits of eight scales | 4 bytes: their low nibbles | 8 groups of 16
// bytes, each as in IQ4_NL. Scales are biased by 32.
void decode_iq4_xs(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  const auto scales_high = load<std::uint16_t>(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = (block[4 + group / 2] >> (group % 2 * 4)) & 0xF;
    const int high = (scales_high >> (group * 2)) & 3;
    const float step = d * to_float((low | (high << 4)) - 32);
    for (int i = 0; i < 16; ++i) {
      const std::uint8_t pair = block[8 + group * 16 + i];
      out[group * 32 + i] = step * to_float(kIq4Levels[pair & 0xF]);
      out[group * 32 + i + 16] = step * to_float(kIq4Levels[pair >> 4]);
    }
  }
}

// A byte of TQ1_0 is a fraction of 256 in base three: multiplying by 3^digit modulo 256 brings the
// digit to the front, multiplying by three and dividing by 256 reads it. Digits 0, 1, 2 stand for
// -1, 0, 1.
int ternary_digit(std::uint8_t packed, int digit) {
  constexpr std::array<int, 5> kPowers = {1, 3, 9, 27, 81};
  const int shifted = (packed * kPowers[static_cast<std::size_t>(digit)]) & 0xFF;
  return (shifted * 3 >> 8) - 1;
}

// 48 bytes of five digits | 4 bytes of four digits | half d. Digit n of a run of bytes comes before
// digit n + 1 of any of them; the runs are 32, 16 and 4 bytes long.
void decode_tq1_0(const std::uint8_t* block, float* out) {
  struct Run {
    int begin, bytes, digits;
  };
  constexpr std::array<Run, 3> kRuns = {{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}};
  const float d = load_half(block + 52);
  for (const Run& run : kRuns) {
    for (int digit = 0; digit < run.digits; ++digit) {
      for (int i = 0; i < run.bytes; ++i) {
        *out++ = to_float(ternary_digit(block[run.begin + i], digit)) * d;
      }
    }
  }
}

// 64 bytes of two-bit values laid out as in Q2_K, biased by one | half d.
void decode_tq2_0(const std::uint8_t* block, float* out) {
  const float d = load_half(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int quant = (block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out[i] = to_float(quant - 1) * d;
  }
}

// 1 byte e | 16 bytes of nibbles: E2M1 values times 2^(e - 127). The table holds them doubled, the
// scale halved, so that the table is whole numbers.
void decode_mxfp4(const std::uint8_t* block, float* out) {
  const auto half_scale = std::bit_cast<float>(mxfp4_half_scale_bits(block[0]));
  for (int i = 0; i < 16; ++i) {
    const std::uint8_t pair = block[1 + i];
    out[i] = to_float(fp4_level(pair & 0xF)) * half_scale;
    out[i + 16] = to_float(fp4_level(pair >> 4)) * half_scale;
  }
}

// 4 scales of 16 values each (eight bits: E4M3 without a sign) | 32 bytes of nibbles: E2M1 values,
// 8 bytes for each scale. Doubled and halved as in MXFP4; the scale that would be NaN is zero.
void decode_nvfp4(const std::uint8_t* block, float* out) {
  for (int group = 0; group < 4; ++group) {
    const float half_scale = nvfp4_half_scale(block[group]);
    for (int i = 0; i < 8; ++i) {
      const std::uint8_t pair = block[4 + group * 8 + i];
      out[group * 16 + i] = to_float(fp4_level(pair & 0xF)) * half_scale;
      out[group * 16 + i + 8] = to_float(fp4_level(pair >> 4)) * half_scale;
    }
  }
}

template <class Type>
void decode_codebook(const std::uint8_t* block, float* out) {
  const float d = tensor::half_to_float(static_cast<std::uint16_t>(Type::scale_bits(block)));
  for (int n = 0; n < 32; ++n) {
    const Eight eight = Type::eight(block, d, n);
    for (int i = 0; i < 8; ++i) out[n * 8 + i] = codebook_value<Type>(eight, i);
  }
}

template <class Type>
constexpr BlockDecoder kCodebook = each_block<256, Type::kBytes, decode_codebook<Type>>;

// Of types whose numbers stand alone. Null: of no such type.
BlockDecoder plain_decoder(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return each_block<1, 8, decode_number<double>>;
    case DType::F32:
      return each_block<1, 4, decode_number<float>>;
    case DType::F16:
      return each_block<1, 2, decode_half>;
    case DType::BF16:
      return each_block<1, 2, decode_bfloat16>;
    case DType::F8E4M3:
      return each_block<1, 1, decode_f8_e4m3>;
    case DType::F8E5M2:
      return each_block<1, 1, decode_f8_e5m2>;
    case DType::I8:
      return each_block<1, 1, decode_number<std::int8_t>>;
    case DType::I16:
      return each_block<1, 2, decode_number<std::int16_t>>;
    case DType::I32:
      return each_block<1, 4, decode_number<std::int32_t>>;
    case DType::I64:
      return each_block<1, 8, decode_number<std::int64_t>>;
    case DType::U8:
      return each_block<1, 1, decode_number<std::uint8_t>>;
    case DType::U16:
      return each_block<1, 2, decode_number<std::uint16_t>>;
    case DType::U32:
      return each_block<1, 4, decode_number<std::uint32_t>>;
    case DType::U64:
      return each_block<1, 8, decode_number<std::uint64_t>>;
    case DType::Bool:
      return each_block<1, 1, decode_bool>;
    default:
      return nullptr;
  }
}

}  // namespace

BlockDecoder block_decoder(DType dtype) {
  switch (dtype) {
    case DType::Q4_0:
      return each_block<32, 18, decode_q4_0>;
    case DType::Q4_1:
      return each_block<32, 20, decode_q4_1>;
    case DType::Q5_0:
      return each_block<32, 22, decode_q5_0>;
    case DType::Q5_1:
      return each_block<32, 24, decode_q5_1>;
    case DType::Q8_0:
      return each_block<32, 34, decode_q8_0>;
    case DType::Q2_K:
      return each_block<256, 84, decode_q2_k>;
    case DType::Q3_K:
      return each_block<256, 110, decode_q3_k>;
    case DType::Q4_K:
      return each_block<256, 144, decode_q4_k>;
    case DType::Q5_K:
      return each_block<256, 176, decode_q5_k>;
    case DType::Q6_K:
      return each_block<256, 210, decode_q6_k>;
    case DType::IQ4_NL:
      return each_block<32, 18, decode_iq4_nl>;
    case DType::IQ4_XS:
      return each_block<256, 136, decode_iq4_xs>;
    case DType::TQ1_0:
      return each_block<256, 54, decode_tq1_0>;
    case DType::TQ2_0:
      return each_block<256, 66, decode_tq2_0>;
    case DType::MXFP4:
      return each_block<32, 17, decode_mxfp4>;
    case DType::NVFP4:
      return each_block<64, 36, decode_nvfp4>;
    case DType::IQ1_S:
      return kCodebook<IQ1_S>;
    case DType::IQ1_M:
      return kCodebook<IQ1_M>;
    case DType::IQ2_XXS:
      return kCodebook<IQ2_XXS>;
    case DType::IQ2_XS:
      return kCodebook<IQ2_XS>;
    case DType::IQ2_S:
      return kCodebook<IQ2_S>;
    case DType::IQ3_XXS:
      return kCodebook<IQ3_XXS>;
    case DType::IQ3_S:
      return kCodebook<IQ3_S>;
    case DType::Q8_1:  // these exist only inside computations
    case DType::Q8_K:
      return nullptr;
    default:
      return plain_decoder(dtype);
  }
}

bool can_dequantize(DType dtype) {
  return block_decoder(dtype) != nullptr;
}

Status dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const BlockDecoder decode = block_decoder(dtype);
  if (decode == nullptr) {
    return Error{ErrorCode::Unsupported, fmt::format("not supported: {}", tensor::name(dtype))};
  }
  const auto elems = static_cast<std::int64_t>(out.size());
  const auto expected = tensor::storage_bytes(dtype, elems);
  if (!expected || static_cast<std::uint64_t>(*expected) != blocks.size()) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{} values of {} do not fit {} bytes (blocks of {} values in {} bytes)", elems,
                    tensor::name(dtype), blocks.size(), tensor::info(dtype).block_elems,
                    tensor::info(dtype).block_bytes)};
  }
  decode(reinterpret_cast<const std::uint8_t*>(blocks.data()),
         elems / tensor::info(dtype).block_elems, out.data());
  return ok_status();
}

}  // namespace llorch::compute
