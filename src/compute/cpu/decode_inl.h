// Weight rows to float32, vectorised for the types that models mostly come in; bit for bit what
// dequantize() gives, which decodes the rest. Included once per instruction set.
#include "compute/cpu/vector_inl.h"
#include "compute/dequantize.h"

#if defined(LLORCH_COMPUTE_CPU_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_DECODE_INL_H
#undef LLORCH_COMPUTE_CPU_DECODE_INL_H
#else
#define LLORCH_COMPUTE_CPU_DECODE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

using Bytes = hn::Rebind<std::uint8_t, Floats>;
using SignedBytes = hn::Rebind<std::int8_t, Floats>;
using Ints = hn::RebindToSigned<Floats>;

HWY_INLINE float load_scale(const std::uint8_t* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return tensor::half_to_float(bits);
}

HWY_INLINE Vec widen(hn::Vec<Bytes> bytes, int bias) {
  return hn::ConvertTo(Floats(), hn::Sub(hn::PromoteTo(Ints(), bytes), hn::Set(Ints(), bias)));
}

HWY_INLINE hn::Vec<Bytes> low_nibbles(hn::Vec<Bytes> bytes) {
  return hn::And(bytes, hn::Set(Bytes(), std::uint8_t{0xF}));
}

template <class T>
HWY_INLINE void decode_plain(const std::uint8_t* row, std::int64_t elems, float* out) {
  const T* values = reinterpret_cast<const T*>(row);
  std::int64_t i = 0;
  for (; i + kLanes <= elems; i += kLanes) hn::StoreU(load(values + i), Floats(), out + i);
  for (; i < elems; ++i) out[i] = to_float(values[i]);
}

HWY_INLINE void decode_q8_0(const std::uint8_t* block, float* out) {
  const Vec scale = hn::Set(Floats(), load_scale(block));
  for (std::int64_t i = 0; i < 32; i += kLanes) {
    const auto quants =
        hn::LoadU(SignedBytes(), reinterpret_cast<const std::int8_t*>(block + 2 + i));
    const Vec values = hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), quants));
    hn::StoreU(hn::Mul(values, scale), Floats(), out + i);
  }
}

// Nibbles with a bias, times a scale, plus an offset where the type has one: Q4_0 and Q4_1.
template <bool HasOffset>
HWY_INLINE void decode_nibbles(const std::uint8_t* block, float* out) {
  const Vec scale = hn::Set(Floats(), load_scale(block));
  const Vec offset = hn::Set(Floats(), HasOffset ? load_scale(block + 2) : 0.0F);
  const std::uint8_t* nibbles = block + (HasOffset ? 4 : 2);
  const auto finish = [&](hn::Vec<Bytes> quants) HWY_ATTR {
    const Vec scaled = hn::Mul(widen(quants, HasOffset ? 0 : 8), scale);
    return HasOffset ? hn::Add(scaled, offset) : scaled;
  };
  for (std::int64_t i = 0; i < 16; i += kLanes) {
    const auto pairs = hn::LoadU(Bytes(), nibbles + i);
    hn::StoreU(finish(low_nibbles(pairs)), Floats(), out + i);
    hn::StoreU(finish(hn::ShiftRight<4>(pairs)), Floats(), out + i + 16);
  }
}

// The same with a fifth bit: Q5_0 and Q5_1.
template <bool HasOffset>
HWY_INLINE void decode_five_bits(const std::uint8_t* block, float* out) {
  const Vec scale = hn::Set(Floats(), load_scale(block));
  const Vec offset = hn::Set(Floats(), HasOffset ? load_scale(block + 2) : 0.0F);
  std::uint32_t word;
  std::memcpy(&word, block + (HasOffset ? 4 : 2), sizeof(word));
  HWY_ALIGN std::uint8_t fifth[32];
  for (int i = 0; i < 32; ++i) fifth[i] = static_cast<std::uint8_t>((word >> i & 1U) << 4);
  const std::uint8_t* nibbles = block + (HasOffset ? 8 : 6);
  const auto finish = [&](hn::Vec<Bytes> quants) HWY_ATTR {
    const Vec scaled = hn::Mul(widen(quants, HasOffset ? 0 : 16), scale);
    return HasOffset ? hn::Add(scaled, offset) : scaled;
  };
  for (std::int64_t i = 0; i < 16; i += kLanes) {
    const auto pairs = hn::LoadU(Bytes(), nibbles + i);
    const auto low = hn::Or(low_nibbles(pairs), hn::LoadU(Bytes(), fifth + i));
    const auto high = hn::Or(hn::ShiftRight<4>(pairs), hn::LoadU(Bytes(), fifth + 16 + i));
    hn::StoreU(finish(low), Floats(), out + i);
    hn::StoreU(finish(high), Floats(), out + i + 16);
  }
}

// Step and minimum of each of the eight groups of a Q4_K or Q5_K block.
struct GroupScales {
  float steps[8];
  float mins[8];
};
HWY_INLINE GroupScales load_group_scales(const std::uint8_t* block) {
  const float d = load_scale(block);
  const float dmin = load_scale(block + 2);
  const std::uint8_t* packed = block + 4;
  GroupScales scales;
  for (int group = 0; group < 8; ++group) {
    const bool early = group < 4;
    const int step =
        early ? packed[group] & 63 : (packed[group + 4] & 0xF) | (packed[group - 4] >> 6) << 4;
    const int min =
        early ? packed[group + 4] & 63 : packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
    scales.steps[group] = d * static_cast<float>(step);
    scales.mins[group] = dmin * static_cast<float>(min);
  }
  return scales;
}

// Groups 2 * Pair and 2 * Pair + 1: the low and the high nibbles of 32 bytes, with fifth bits for
// Q5_K.
template <int Pair, bool HasFifth>
HWY_INLINE void decode_group_pair(const GroupScales& scales, const std::uint8_t* nibbles,
                                  const std::uint8_t* fifth_bits, float* out) {
  const Vec low_step = hn::Set(Floats(), scales.steps[2 * Pair]);
  const Vec low_min = hn::Set(Floats(), scales.mins[2 * Pair]);
  const Vec high_step = hn::Set(Floats(), scales.steps[2 * Pair + 1]);
  const Vec high_min = hn::Set(Floats(), scales.mins[2 * Pair + 1]);
  for (std::int64_t i = 0; i < 32; i += kLanes) {
    const auto pairs = hn::LoadU(Bytes(), nibbles + Pair * 32 + i);
    auto low = low_nibbles(pairs);
    auto high = hn::ShiftRight<4>(pairs);
    if constexpr (HasFifth) {
      const auto one = hn::Set(Bytes(), std::uint8_t{1});
      const auto bits = hn::LoadU(Bytes(), fifth_bits + i);
      low = hn::Or(low, hn::ShiftLeft<4>(hn::And(hn::ShiftRight<2 * Pair>(bits), one)));
      high = hn::Or(high, hn::ShiftLeft<4>(hn::And(hn::ShiftRight<2 * Pair + 1>(bits), one)));
    }
    hn::StoreU(hn::Sub(hn::Mul(low_step, widen(low, 0)), low_min), Floats(), out + Pair * 64 + i);
    hn::StoreU(hn::Sub(hn::Mul(high_step, widen(high, 0)), high_min), Floats(),
               out + Pair * 64 + 32 + i);
  }
}

// Q4_K, and Q5_K with its 32 bytes of fifth bits before the nibbles.
template <bool HasFifth>
HWY_INLINE void decode_groups(const std::uint8_t* block, float* out) {
  const GroupScales scales = load_group_scales(block);
  const std::uint8_t* fifth_bits = block + 16;
  const std::uint8_t* nibbles = block + (HasFifth ? 48 : 16);
  decode_group_pair<0, HasFifth>(scales, nibbles, fifth_bits, out);
  decode_group_pair<1, HasFifth>(scales, nibbles, fifth_bits, out);
  decode_group_pair<2, HasFifth>(scales, nibbles, fifth_bits, out);
  decode_group_pair<3, HasFifth>(scales, nibbles, fifth_bits, out);
}

// Quarter 0..3 of half a Q6_K block: 32 values.
template <int Quarter>
HWY_INLINE void decode_q6_k_quarter(const std::uint8_t* low, const std::uint8_t* high,
                                    const std::uint8_t* scales, float d, float* out) {
  for (std::int64_t i = 0; i < 32; i += kLanes) {
    const auto nibbles = hn::LoadU(Bytes(), low + Quarter % 2 * 32 + i);
    const auto pairs = hn::ShiftRight<Quarter * 2>(hn::LoadU(Bytes(), high + i));
    const auto upper = hn::ShiftLeft<4>(hn::And(pairs, hn::Set(Bytes(), std::uint8_t{3})));
    const auto lower = Quarter < 2 ? low_nibbles(nibbles) : hn::ShiftRight<4>(nibbles);
    const auto scale = static_cast<std::int8_t>(scales[Quarter * 2 + i / 16]);
    const Vec step = hn::Set(Floats(), d * static_cast<float>(scale));
    hn::StoreU(hn::Mul(step, widen(hn::Or(lower, upper), 32)), Floats(), out + Quarter * 32 + i);
  }
}

HWY_INLINE void decode_q6_k(const std::uint8_t* block, float* out) {
  const float d = load_scale(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* low = block + half * 64;
    const std::uint8_t* high = block + 128 + half * 32;
    const std::uint8_t* scales = block + 192 + half * 8;
    decode_q6_k_quarter<0>(low, high, scales, d, out + half * 128);
    decode_q6_k_quarter<1>(low, high, scales, d, out + half * 128);
    decode_q6_k_quarter<2>(low, high, scales, d, out + half * 128);
    decode_q6_k_quarter<3>(low, high, scales, d, out + half * 128);
  }
}

template <int Elems, int BlockBytes, void (*decode)(const std::uint8_t*, float*)>
HWY_INLINE void each_block(const std::uint8_t* row, std::int64_t elems, float* out) {
  for (std::int64_t i = 0; i < elems / Elems; ++i) decode(row + i * BlockBytes, out + i * Elems);
}

HWY_MAYBE_UNUSED static void decode_row(tensor::DType dtype, const std::uint8_t* row,
                                        std::int64_t elems, float* out) {
  using tensor::DType;
  switch (dtype) {
    case DType::F32:
      return decode_plain<float>(row, elems, out);
    case DType::F16:
      return decode_plain<Half>(row, elems, out);
    case DType::BF16:
      return decode_plain<Bfloat16>(row, elems, out);
    case DType::Q8_0:
      return each_block<32, 34, decode_q8_0>(row, elems, out);
    case DType::Q4_0:
      return each_block<32, 18, decode_nibbles<false>>(row, elems, out);
    case DType::Q4_1:
      return each_block<32, 20, decode_nibbles<true>>(row, elems, out);
    case DType::Q5_0:
      return each_block<32, 22, decode_five_bits<false>>(row, elems, out);
    case DType::Q5_1:
      return each_block<32, 24, decode_five_bits<true>>(row, elems, out);
    case DType::Q4_K:
      return each_block<256, 144, decode_groups<false>>(row, elems, out);
    case DType::Q5_K:
      return each_block<256, 176, decode_groups<true>>(row, elems, out);
    case DType::Q6_K:
      return each_block<256, 210, decode_q6_k>(row, elems, out);
    default:
      return block_decoder(dtype)(row, elems / tensor::info(dtype).block_elems, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
