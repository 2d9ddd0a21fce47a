// Weight rows to float32, vectorised for the types that models mostly come in; bit for bit what
// dequantize() gives, which decodes the rest. Included once per instruction set.
//
// A decoder of one block hands its values to a sink, sink(offset, vector), in the order they have
// in the row: the sink stores them, or multiplies them at once (linear_inl.h).
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
  const hn::CappedTag<float, 4> floats;
  const hn::Rebind<hwy::float16_t, decltype(floats)> halves;
  HWY_ALIGN std::uint16_t bits[4] = {};
  std::memcpy(bits, p, sizeof(bits[0]));
  return hn::GetLane(
      hn::PromoteTo(floats, hn::Load(halves, reinterpret_cast<const hwy::float16_t*>(bits))));
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

struct DecodeQ8_0 {
  static constexpr std::int64_t kElems = 32;
  static constexpr std::int64_t kBytes = 34;

  template <class Sink>
  static HWY_INLINE void decode(const std::uint8_t* block, const Sink& sink) {
    const Vec scale = hn::Set(Floats(), load_scale(block));
    for (std::int64_t i = 0; i < 32; i += kLanes) {
      const auto quants =
          hn::LoadU(SignedBytes(), reinterpret_cast<const std::int8_t*>(block + 2 + i));
      sink(i, hn::Mul(hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), quants)), scale));
    }
  }
};

// Nibbles with a bias, times a scale, plus an offset where the type has one: Q4_0 and Q4_1. With a
// fifth bit for each: Q5_0 and Q5_1.
template <bool HasFifth, bool HasOffset>
struct DecodeNibbles {
  static constexpr std::int64_t kElems = 32;
  static constexpr std::int64_t kFifthAt = HasOffset ? 4 : 2;
  static constexpr std::int64_t kNibblesAt = kFifthAt + (HasFifth ? 4 : 0);
  static constexpr std::int64_t kBytes = kNibblesAt + 16;
  static constexpr int kBias = HasOffset ? 0 : HasFifth ? 16 : 8;

  template <class Sink>
  static HWY_INLINE void decode(const std::uint8_t* block, const Sink& sink) {
    const Vec scale = hn::Set(Floats(), load_scale(block));
    const Vec offset = hn::Set(Floats(), HasOffset ? load_scale(block + 2) : 0.0F);
    const std::uint8_t* nibbles = block + kNibblesAt;
    HWY_ALIGN std::uint8_t fifth[32];
    if constexpr (HasFifth) {
      std::uint32_t word;
      std::memcpy(&word, block + kFifthAt, sizeof(word));
      for (int i = 0; i < 32; ++i) fifth[i] = static_cast<std::uint8_t>((word >> i & 1U) << 4);
    }
    const auto finish = [&](std::int64_t i, hn::Vec<Bytes> quants) HWY_ATTR {
      if constexpr (HasFifth) quants = hn::Or(quants, hn::LoadU(Bytes(), fifth + i));
      const Vec scaled = hn::Mul(widen(quants, kBias), scale);
      sink(i, HasOffset ? hn::Add(scaled, offset) : scaled);
    };
    for (std::int64_t i = 0; i < 16; i += kLanes)
      finish(i, low_nibbles(hn::LoadU(Bytes(), nibbles + i)));
    for (std::int64_t i = 0; i < 16; i += kLanes)
      finish(16 + i, hn::ShiftRight<4>(hn::LoadU(Bytes(), nibbles + i)));
  }
};

// Step and minimum of each of the eight groups of a Q4_K or Q5_K block, which packs them as six
// bits each: the first four groups' whole, the others' in two parts.
struct GroupScales {
  HWY_ALIGN float steps[8];
  HWY_ALIGN float mins[8];
};
HWY_INLINE GroupScales load_group_scales(const std::uint8_t* block) {
  std::uint32_t words[3];
  std::memcpy(words, block + 4, sizeof(words));
  constexpr std::uint32_t kSix = 0x3F3F3F3F, kFour = 0x0F0F0F0F, kTopTwo = 0x30303030;
  const std::uint32_t packed[4] = {words[0] & kSix, (words[2] & kFour) | (words[0] >> 2 & kTopTwo),
                                   words[1] & kSix,
                                   (words[2] >> 4 & kFour) | (words[1] >> 2 & kTopTwo)};
  HWY_ALIGN std::uint8_t quants[16];
  std::memcpy(quants, packed, sizeof(quants));
  const hn::CappedTag<float, 8> eight;
  const hn::Rebind<std::uint8_t, decltype(eight)> bytes;
  const hn::RebindToSigned<decltype(eight)> ints;
  const auto d = hn::Set(eight, load_scale(block));
  const auto dmin = hn::Set(eight, load_scale(block + 2));
  GroupScales scales;
  for (std::size_t i = 0; i < 8; i += hn::Lanes(eight)) {
    const auto values = [&](const std::uint8_t* p) HWY_ATTR {
      return hn::ConvertTo(eight, hn::PromoteTo(ints, hn::LoadU(bytes, p)));
    };
    hn::Store(hn::Mul(d, values(quants + i)), eight, scales.steps + i);
    hn::Store(hn::Mul(dmin, values(quants + 8 + i)), eight, scales.mins + i);
  }
  return scales;
}

// Group 0..7 of a Q4_K or Q5_K block: the low (even groups) or the high nibbles of 32 bytes, with
// fifth bits for Q5_K.
template <int Group, bool HasFifth, class Sink>
HWY_INLINE void decode_group(const GroupScales& scales, const std::uint8_t* nibbles,
                             const std::uint8_t* fifth_bits, const Sink& sink) {
  const Vec step = hn::Set(Floats(), scales.steps[Group]);
  const Vec min = hn::Set(Floats(), scales.mins[Group]);
  for (std::int64_t i = 0; i < 32; i += kLanes) {
    const auto pairs = hn::LoadU(Bytes(), nibbles + Group / 2 * 32 + i);
    auto quants = Group % 2 == 0 ? low_nibbles(pairs) : hn::ShiftRight<4>(pairs);
    if constexpr (HasFifth) {
      const auto bits = hn::ShiftRight<Group>(hn::LoadU(Bytes(), fifth_bits + i));
      quants = hn::Or(quants, hn::ShiftLeft<4>(hn::And(bits, hn::Set(Bytes(), std::uint8_t{1}))));
    }
    sink(Group * 32 + i, hn::Sub(hn::Mul(step, widen(quants, 0)), min));
  }
}

// Q4_K, and Q5_K with its 32 bytes of fifth bits before the nibbles.
template <bool HasFifth>
struct DecodeGroups {
  static constexpr std::int64_t kElems = 256;
  static constexpr std::int64_t kBytes = HasFifth ? 176 : 144;

  template <class Sink>
  static HWY_INLINE void decode(const std::uint8_t* block, const Sink& sink) {
    const GroupScales scales = load_group_scales(block);
    const std::uint8_t* fifth_bits = block + 16;
    const std::uint8_t* nibbles = block + (HasFifth ? 48 : 16);
    decode_group<0, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<1, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<2, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<3, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<4, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<5, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<6, HasFifth>(scales, nibbles, fifth_bits, sink);
    decode_group<7, HasFifth>(scales, nibbles, fifth_bits, sink);
  }
};

struct DecodeQ6_K {
  static constexpr std::int64_t kElems = 256;
  static constexpr std::int64_t kBytes = 210;

  template <class Sink>
  static HWY_INLINE void decode(const std::uint8_t* block, const Sink& sink) {
    const Vec d = hn::Set(Floats(), load_scale(block + 208));
    const auto* scales = reinterpret_cast<const std::int8_t*>(block + 192);
    HWY_ALIGN float steps[16];  // of 16 values each
    for (std::int64_t i = 0; i < 16; i += kLanes) {
      const auto quants = hn::PromoteTo(Ints(), hn::LoadU(SignedBytes(), scales + i));
      hn::Store(hn::Mul(d, hn::ConvertTo(Floats(), quants)), Floats(), steps + i);
    }
    decode_half<0>(block, steps, sink);
    decode_half<1>(block, steps, sink);
  }

 private:
  template <int Half, class Sink>
  static HWY_INLINE void decode_half(const std::uint8_t* block, const float* steps,
                                     const Sink& sink) {
    decode_quarter<Half, 0>(block, steps, sink);
    decode_quarter<Half, 1>(block, steps, sink);
    decode_quarter<Half, 2>(block, steps, sink);
    decode_quarter<Half, 3>(block, steps, sink);
  }

  // 32 values.
  template <int Half, int Quarter, class Sink>
  static HWY_INLINE void decode_quarter(const std::uint8_t* block, const float* steps,
                                        const Sink& sink) {
    const std::uint8_t* low = block + Half * 64;
    const std::uint8_t* high = block + 128 + Half * 32;
    for (std::int64_t i = 0; i < 32; i += kLanes) {
      const auto nibbles = hn::LoadU(Bytes(), low + Quarter % 2 * 32 + i);
      const auto pairs = hn::ShiftRight<Quarter * 2>(hn::LoadU(Bytes(), high + i));
      const auto upper = hn::ShiftLeft<4>(hn::And(pairs, hn::Set(Bytes(), std::uint8_t{3})));
      const auto lower = Quarter < 2 ? low_nibbles(nibbles) : hn::ShiftRight<4>(nibbles);
      const Vec step = hn::Set(Floats(), steps[Half * 8 + Quarter * 2 + i / 16]);
      sink(Half * 128 + Quarter * 32 + i, hn::Mul(step, widen(hn::Or(lower, upper), 32)));
    }
  }
};

// Calls use(Decoder()) for the types that have a vectorised decoder of blocks; false for the
// others.
template <class Use>
HWY_INLINE bool with_block_decoder(tensor::DType dtype, const Use& use) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q8_0:
      return use(DecodeQ8_0()), true;
    case DType::Q4_0:
      return use(DecodeNibbles<false, false>()), true;
    case DType::Q4_1:
      return use(DecodeNibbles<false, true>()), true;
    case DType::Q5_0:
      return use(DecodeNibbles<true, false>()), true;
    case DType::Q5_1:
      return use(DecodeNibbles<true, true>()), true;
    case DType::Q4_K:
      return use(DecodeGroups<false>()), true;
    case DType::Q5_K:
      return use(DecodeGroups<true>()), true;
    case DType::Q6_K:
      return use(DecodeQ6_K()), true;
    default:
      return false;
  }
}

HWY_MAYBE_UNUSED static void decode_row(tensor::DType dtype, const std::uint8_t* row,
                                        std::int64_t elems, float* out) {
  using tensor::DType;
  if (dtype == DType::F32) return decode_plain<float>(row, elems, out);
  if (dtype == DType::F16) return decode_plain<Half>(row, elems, out);
  if (dtype == DType::BF16) return decode_plain<Bfloat16>(row, elems, out);
  const bool decoded = with_block_decoder(dtype, [&](auto decoder) HWY_ATTR {
    using Decoder = decltype(decoder);
    for (std::int64_t i = 0; i < elems / Decoder::kElems; ++i) {
      float* values = out + i * Decoder::kElems;
      Decoder::decode(row + i * Decoder::kBytes, [values](std::int64_t at, Vec v) HWY_ATTR {
        hn::StoreU(v, Floats(), values + at);
      });
    }
  });
  if (!decoded) block_decoder(dtype)(row, elems / tensor::info(dtype).block_elems, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
