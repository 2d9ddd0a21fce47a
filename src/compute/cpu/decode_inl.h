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

HWY_INLINE void decode_q4_0(const std::uint8_t* block, float* out) {
  const Vec scale = hn::Set(Floats(), load_scale(block));
  for (std::int64_t i = 0; i < 16; i += kLanes) {
    const auto pairs = hn::LoadU(Bytes(), block + 2 + i);
    hn::StoreU(hn::Mul(widen(low_nibbles(pairs), 8), scale), Floats(), out + i);
    hn::StoreU(hn::Mul(widen(hn::ShiftRight<4>(pairs), 8), scale), Floats(), out + i + 16);
  }
}

HWY_INLINE void decode_q4_k(const std::uint8_t* block, float* out) {
  const float d = load_scale(block);
  const float dmin = load_scale(block + 2);
  const std::uint8_t* packed = block + 4;
  Vec steps[8];
  Vec mins[8];
  for (int group = 0; group < 8; ++group) {
    const bool early = group < 4;
    const int scale =
        early ? packed[group] & 63 : (packed[group + 4] & 0xF) | (packed[group - 4] >> 6) << 4;
    const int min =
        early ? packed[group + 4] & 63 : packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
    steps[group] = hn::Set(Floats(), d * static_cast<float>(scale));
    mins[group] = hn::Set(Floats(), dmin * static_cast<float>(min));
  }
  for (int pair = 0; pair < 4; ++pair) {
    for (std::int64_t i = 0; i < 32; i += kLanes) {
      const auto quants = hn::LoadU(Bytes(), block + 16 + pair * 32 + i);
      const Vec low = hn::Mul(steps[2 * pair], widen(low_nibbles(quants), 0));
      const Vec high = hn::Mul(steps[2 * pair + 1], widen(hn::ShiftRight<4>(quants), 0));
      hn::StoreU(hn::Sub(low, mins[2 * pair]), Floats(), out + pair * 64 + i);
      hn::StoreU(hn::Sub(high, mins[2 * pair + 1]), Floats(), out + pair * 64 + 32 + i);
    }
  }
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
      return each_block<32, 18, decode_q4_0>(row, elems, out);
    case DType::Q4_K:
      return each_block<256, 144, decode_q4_k>(row, elems, out);
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
