// Tiles with NEON and its dot products of bytes (ARMv8.2's dotprod): a vector is a quarter of a
// tile, four rows. Compiled for that set; it holds nothing that another file could be given by the
// linker.
//
// Numbers are multiplied as signed bytes. Those that need eight bits have a bias of 128, which
// turning the top bit takes away; the others are small enough as they are.
#include "compute/cpu/packed.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cfloat>

#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

using tensor::DType;

constexpr int kQuarters = 4;
constexpr int kLanes = 4;  // of a quarter
// More rows than this would not fit the registers.
constexpr int kRowsAtOnce = 2;

struct Floats {
  float32x4_t v[kQuarters];
};
struct Ints {
  int32x4_t v[kQuarters];
};

LLORCH_INLINE float32x4_t load_four_halves(const std::uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
LLORCH_INLINE Floats load_halves(const std::uint8_t* p) {
  Floats out;
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) out.v[q] = load_four_halves(p + q * kLanes * 2);
  return out;
}
LLORCH_INLINE Floats load_bytes(const std::uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
LLORCH_INLINE Floats times(const Floats& a, const Floats& b) {
  Floats out;
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) out.v[q] = vmulq_f32(a.v[q], b.v[q]);
  return out;
}
LLORCH_INLINE Floats times(const Floats& a, float b) {
  Floats out;
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) out.v[q] = vmulq_n_f32(a.v[q], b);
  return out;
}

// Bits at `from` of each byte moved to `to`, the others cleared.
template <int from, int to, int width>
LLORCH_INLINE uint8x16_t move_bits(uint8x16_t v) {
  if constexpr (from > to) v = vshrq_n_u8(v, from - to);
  if constexpr (from < to) v = vshlq_n_u8(v, to - from);
  return vandq_u8(v, vdupq_n_u8(static_cast<std::uint8_t>(((1 << width) - 1) << to)));
}

constexpr bool has_signs(QuantLayout layout) {
  return layout.low_bits == 8 || layout.levels;
}

// The numbers of step s of a quarter, as signed bytes.
template <DType T, int s>
LLORCH_INLINE int8x16_t load_step(const std::uint8_t* vectors) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kHigh = kLayout.high_bits;
  const auto load = [&](int vector) __attribute__((always_inline)) {
    return vld1q_u8(vectors + vector * kVectorBytes);
  };
  const uint8x16_t top = vdupq_n_u8(0x80);
  if constexpr (kLayout.low_bits == 8) return vreinterpretq_s8_u8(veorq_u8(load(s), top));
  uint8x16_t v;
  if constexpr (kLayout.low_bits == 4) {
    v = move_bits<s / 4 * 4, 0, 4>(load(kHigh + s % 4));
  } else {
    v = move_bits<s % 4 * 2, kLayout.up, 2>(load(kHigh + s / 4));
  }
  if constexpr (kLayout.levels)
    return vreinterpretq_s8_u8(veorq_u8(vqtbl1q_u8(vld1q_u8(kIq4Levels), v), top));
  constexpr int kTop = kLayout.low_bits + kLayout.up;
  if constexpr (kHigh == 1) v = vorrq_u8(v, move_bits<s, kTop, 1>(load(0)));
  if constexpr (kHigh == 2) v = vorrq_u8(v, move_bits<s % 4 * 2, kTop, 2>(load(s / 4)));
  return vreinterpretq_s8_u8(v);
}

// wide[r] += steps first..first + 4, whose input is one vector.
template <DType T, int Rows, int first>
LLORCH_INLINE void dot(const std::uint8_t* vectors, const InputBlock* x, Ints* wide) {
  int8x16_t quants[std::size_t{Rows}];
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) quants[r] = vld1q_s8(x[r].quants + 4 * first);
  const auto step = [&]<int i>() __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) {
      const int8x16_t numbers = load_step<T, first + i>(vectors + q * 16);
#pragma GCC unroll 2
      for (int r = 0; r < Rows; ++r)
        wide[r].v[q] = vdotq_laneq_s32(wide[r].v[q], numbers, quants[r], i);
    }
  };
  step.template operator()<0>();
  step.template operator()<1>();
  step.template operator()<2>();
  step.template operator()<3>();
}

// What scales 32 k: one step, or one for each half; minimums likewise.
struct Scales {
  Floats step[2];
  Floats min[2];
};

template <int Rows>
LLORCH_INLINE void start(const InputBlock* x, int which, Ints* wide) {
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) {
    const int32x4_t begin = vdupq_n_s32(which < 0 ? 0 : x[r].starts[which]);
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) wide[r].v[q] = begin;
  }
}

template <DType T, int Rows>
LLORCH_INLINE void add_group(const std::uint8_t* vectors, const Scales& scales, const InputBlock* x,
                             Floats* sums) {
  constexpr QuantLayout kLayout = quant_layout(T);
  Ints wide[std::size_t{Rows}];
  if constexpr (kLayout.halves) {
    constexpr bool kBiased = kLayout.bias == NumberBias::Halves32;
    Floats parts[std::size_t{Rows}];
    start<Rows>(x, kBiased ? 3 : -1, wide);
    dot<T, Rows, 0>(vectors, x, wide);
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q)
        parts[r].v[q] = vmulq_f32(vcvtq_f32_s32(wide[r].v[q]), scales.step[0].v[q]);
    }
    start<Rows>(x, kBiased ? 4 : -1, wide);
    dot<T, Rows, 4>(vectors, x, wide);
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      const float low = static_cast<float>(x[r].starts[3]);
      const float high = static_cast<float>(x[r].starts[4]);
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        float32x4_t t = vfmaq_f32(parts[r].v[q], vcvtq_f32_s32(wide[r].v[q]), scales.step[1].v[q]);
        if constexpr (kLayout.has_min) {
          t = vfmaq_n_f32(t, scales.min[0].v[q], low);
          t = vfmaq_n_f32(t, scales.min[1].v[q], high);
        }
        sums[r].v[q] = vfmaq_n_f32(sums[r].v[q], t, x[r].scale);
      }
    }
  } else {
    constexpr bool kBiased = kLayout.bias != NumberBias::None && !has_signs(kLayout);
    start<Rows>(x, kBiased ? static_cast<int>(kLayout.bias) : -1, wide);
    dot<T, Rows, 0>(vectors, x, wide);
    dot<T, Rows, 4>(vectors, x, wide);
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
      const Floats step = times(scales.step[0], x[r].scale);
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        float32x4_t sum = vfmaq_f32(sums[r].v[q], vcvtq_f32_s32(wide[r].v[q]), step.v[q]);
        if constexpr (kLayout.has_min) {
          const float32x4_t total = vdupq_n_f32(x[r].scaled_sum);
          sum = kLayout.subtracts_min ? vfmsq_f32(sum, scales.min[0].v[q], total)
                                      : vfmaq_f32(sum, scales.min[0].v[q], total);
        }
        sums[r].v[q] = sum;
      }
    }
  }
}

template <int Rows>
LLORCH_INLINE void store(const Floats* sums, float* out) {
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) vst1q_f32(out + r * kTileRows + q * kLanes, sums[r].v[q]);
  }
}

template <int Rows>
LLORCH_INLINE void load(const float* from, Floats* sums) {
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) sums[r].v[q] = vld1q_f32(from + r * kTileRows + q * kLanes);
  }
}

template <int Rows>
LLORCH_INLINE void clear(Floats* sums) {
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int q = 0; q < kQuarters; ++q) sums[r].v[q] = vdupq_n_f32(0);
  }
}

struct Tiles {
  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    int done = 0;
    for (; done + kRowsAtOnce <= Rows; done += kRowsAtOnce)
      some_quants<T, kRowsAtOnce>(tile, x + done, Rows, blocks, out + done * kTileRows);
    if constexpr (Rows % kRowsAtOnce != 0)
      some_quants<T, Rows % kRowsAtOnce>(tile, x + done, Rows, blocks, out + done * kTileRows);
  }

  // Rows of x that stand among `stride` in their panel.
  template <DType T, int Rows>
  [[gnu::noinline]] static void some_quants(const std::uint8_t* tile, const InputBlock* x,
                                            std::int64_t stride, std::int64_t blocks, float* out) {
    constexpr QuantLayout kLayout = quant_layout(T);
    Floats sums[std::size_t{Rows}];
    clear<Rows>(sums);
    if constexpr (kLayout.opened) load<Rows>(out, sums);
    if constexpr (kLayout.elems == 32) {
      for (std::int64_t b = 0; b < blocks; ++b, x += stride, tile += kLayout.record_bytes()) {
        if (!kLayout.opened && stride == Rows) fetch_ahead<Rows, kLayout.record_bytes()>(tile);
        Scales scales;
        if constexpr (kLayout.opened) {
          load<1>(reinterpret_cast<const float*>(tile), scales.step);
          if constexpr (kLayout.halves)
            load<1>(reinterpret_cast<const float*>(tile) + kTileRows, scales.step + 1);
        } else {
          scales.step[0] = load_halves(tile);
        }
        if constexpr (kLayout.has_min) scales.min[0] = load_halves(tile + kTileRows * 2);
        add_group<T, Rows>(tile + kLayout.head_bytes(), scales, x, sums);
      }
    } else {
      constexpr int kScales = kLayout.halves ? 2 : 1;
      for (std::int64_t b = 0; b < blocks; b += 8) {
        // Powers of two change nothing but the exponent: of `up`, and of starts that are 32 times a
        // sum.
        const Floats step = times(load_halves(tile), 1.0F / (1 << kLayout.up));
        Floats min = step;
        if constexpr (kLayout.has_min) min = load_halves(tile + kTileRows * 2);
        if constexpr (kLayout.has_min && kLayout.halves) min = times(min, 1.0F / 32);
        tile += kLayout.head_bytes();
        for (int g = 0; g < 8; ++g, x += stride) {
          if (stride == Rows)
            fetch_ahead<Rows, kLayout.scale_bytes() + kLayout.number_bytes()>(tile);
          Scales scales;
          for (int s = 0; s < kScales; ++s) {
            scales.step[s] = times(step, load_bytes(tile + s * kTileRows));
            if constexpr (kLayout.has_min)
              scales.min[s] = times(min, load_bytes(tile + (kScales + s) * kTileRows));
          }
          add_group<T, Rows>(tile + kLayout.scale_bytes(), scales, x, sums);
          tile += kLayout.scale_bytes() + kLayout.number_bytes();
        }
      }
    }
    store<Rows>(sums, out);
  }

  // A quarter of a tile's numbers of one of two k, whose own begin at p.
  template <DType T, int parity>
  static LLORCH_INLINE float32x4_t load_numbers(const std::uint8_t* p) {
    if constexpr (T == DType::BF16) {
      const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(p));
      return vreinterpretq_f32_u32(parity == 0 ? vshlq_n_u32(pairs, 16)
                                               : vandq_u32(pairs, vdupq_n_u32(0xFFFF0000)));
    }
    p += number_offset(T, parity, 0);
    if constexpr (T == DType::F32) return vld1q_f32(reinterpret_cast<const float*>(p));
    return load_four_halves(p);
  }

  template <DType T, int Rows>
  static void numbers(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                      std::int64_t k, float* out) {
    int done = 0;
    for (; done + kRowsAtOnce <= Rows; done += kRowsAtOnce)
      some_numbers<T, kRowsAtOnce>(tile, x + done * x_stride, x_stride, k, out + done * kTileRows);
    if constexpr (Rows % kRowsAtOnce != 0)
      some_numbers<T, Rows % kRowsAtOnce>(tile, x + done * x_stride, x_stride, k,
                                          out + done * kTileRows);
  }

  template <DType T, int Rows>
  [[gnu::noinline]] static void some_numbers(const std::uint8_t* tile, const float* x,
                                             std::int64_t x_stride, std::int64_t k, float* out) {
    constexpr std::int64_t kQuarterBytes = number_offset(T, 0, kLanes);
    constexpr std::int64_t kBytes = number_offset(T, 2, 0);
    Floats even[std::size_t{Rows}], odd[std::size_t{Rows}];
    clear<Rows>(even);
    clear<Rows>(odd);
    const auto add = [&]<int parity>(const std::uint8_t* at, std::int64_t i, Floats* to)
        __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        const float32x4_t number = load_numbers<T, parity>(at + q * kQuarterBytes);
#pragma GCC unroll 2
        for (int r = 0; r < Rows; ++r)
          to[r].v[q] = vfmaq_n_f32(to[r].v[q], number, x[r * x_stride + i + parity]);
      }
    };
    std::int64_t i = 0;
    for (; i + 2 <= k; i += 2, tile += kBytes) {
      fetch_ahead<Rows, kBytes>(tile);
      add.template operator()<0>(tile, i, even);
      add.template operator()<1>(tile, i, odd);
    }
    if (i < k) add.template operator()<0>(tile, i, even);
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) even[r].v[q] = vaddq_f32(even[r].v[q], odd[r].v[q]);
    }
    store<Rows>(even, out);
  }
};

void quantize(const float* x, std::int64_t k, InputBlock* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += kInputBlock, x += kInputBlock, out += stride) {
    float32x4_t values[8];
    float32x4_t most = vdupq_n_f32(0);
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      values[v] = vld1q_f32(x + 4 * v);
      most = vmaxq_f32(most, vabsq_f32(values[v]));  // NaN where one is
    }
    const float largest = vmaxvq_f32(most);
    if (!(largest >= 4e-37F && largest <= FLT_MAX)) {
      quantize_block(x, *out);
      continue;
    }
    const float inverse = 127.0F / largest;
    std::int32_t sums[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      int32x4_t q[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) q[v] = vcvtnq_s32_f32(vmulq_n_f32(values[4 * half + v], inverse));
      const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
      const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
      vst1q_s8(out->quants + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    }
    finish_block(largest / 127.0F, sums[0], sums[1], *out);
  }
}

std::int64_t spin_int8(std::int64_t rounds) {
  const int8x16_t ones = vdupq_n_s8(1);
  const auto add = [ones](int32x4_t sum) __attribute__((always_inline)) {
    return vdotq_s32(sum, ones, ones);
  };
  return spin<12>(rounds, vdupq_n_s32(0), add) * 16 * 2;
}

std::int64_t spin_float(std::int64_t rounds) {
  const float32x4_t half = vdupq_n_f32(0.5F);
  const auto add = [half](float32x4_t sum) __attribute__((always_inline)) {
    return vfmaq_f32(half, sum, half);
  };
  return spin<12>(rounds, vdupq_n_f32(0), add) * 4 * 2;
}

constexpr PackedKernels make_kernels() {
  PackedKernels kernels{};
  kernels.codes = &kCodesPlain;
  TileTables<Tiles>::fill(kernels);
  kernels.quantize = quantize;
  kernels.loops = {.int8 = spin_int8, .floats = spin_float};
  return kernels;
}
constexpr PackedKernels kKernels = make_kernels();

}  // namespace

const PackedKernels* packed_neon() {
  return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 ? &kKernels : nullptr;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_neon() {
  return nullptr;
}
}  // namespace llorch::compute

#endif
