// Weights as the tensor cores want them. A matrix is cut into tiles of 16 outputs x 64 inputs, each
// contiguous; four tiles of the same inputs stand together, then those of the next 64 inputs, so
// that 64 outputs x 64 inputs are one piece of memory for the kernels that copy. Within 32 inputs
// lane (g, t) holds inputs 8t .. 8t + 7 of outputs g and g + 8: one load of 16 bytes feeds whole
// fragments, and an input row is read 16 bytes at a time as it lies. So the k16 step s of 32 inputs
// is the set {8t + 4s .. 8t + 4s + 3}, for every kernel alike.
//
// A format says how many bytes a tile has, which registers a lane fills from it, and how those
// become the fragment of step 0 .. 3.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "lab.cuh"
#include "tensor_core.cuh"

namespace lab {

inline constexpr int kTileOutputs = 16;
inline constexpr int kTileInputs = 64;
inline constexpr int kTileGroup = 4;   // tiles of outputs that stand together
inline constexpr int kSliceTiles = 4;  // 256 inputs are summed from zero, slices then ascending

__host__ __device__ inline int slices_of(int tiles) {
  return (tiles + kSliceTiles - 1) / kSliceTiles;
}

// Where input `k` of 64 stands in the order of the fragments: what a kernel that reads inputs
// through a descriptor needs them stored by.
__host__ __device__ inline int fragment_place(int k) {
  const int in = k % 32;
  return k / 32 * 32 + in % 8 / 4 * 16 + in % 4 / 2 * 8 + in / 8 * 2 + in % 2;
}

// Which tile in memory holds outputs 16 · output_tile … and inputs 64 · tile …
__host__ __device__ inline std::int64_t tile_index(int output_tile, int tile, int tiles) {
  return (static_cast<std::int64_t>(output_tile / kTileGroup) * tiles + tile) * kTileGroup +
         output_tile % kTileGroup;
}

struct Read {  // from device memory, once
  __device__ static uint4 x4(const void* p) { return load_once(p); }
  __device__ static uint2 x2(const void* p) { return __ldg(static_cast<const uint2*>(p)); }
  __device__ static std::uint32_t x1(const void* p) {
    return __ldg(static_cast<const std::uint32_t*>(p));
  }
};
struct ReadShared {
  __device__ static uint4 x4(const void* p) { return *static_cast<const uint4*>(p); }
  __device__ static uint2 x2(const void* p) { return *static_cast<const uint2*>(p); }
  __device__ static std::uint32_t x1(const void* p) {
    return *static_cast<const std::uint32_t*>(p);
  }
};

__device__ inline std::uint32_t bits(__half2 v) {
  std::uint32_t r;
  std::memcpy(&r, &v, 4);
  return r;
}
__device__ inline __half2 halves(std::uint32_t v) {
  __half2 r;
  std::memcpy(&r, &v, 4);
  return r;
}
// The pair (low, low) or (high, high).
__device__ inline __half2 low_twice(std::uint32_t v) {
  return __low2half2(halves(v));
}
__device__ inline __half2 high_twice(std::uint32_t v) {
  return __high2half2(halves(v));
}

// 16-bit floats as they are: half or bfloat16.
template <class T>
struct Plain {
  using Type = T;
  static constexpr const char* kName = std::is_same_v<T, F16> ? "F16" : "BF16";
  static constexpr int kBytes = 2048;
  static constexpr int kRing = 2;
  struct Lane {
    uint4 v[4];
  };
  template <class From>
  __device__ static void load(Lane& r, const std::uint8_t* tile, int lane) {
#pragma unroll
    for (int s = 0; s < 4; ++s) r.v[s] = From::x4(tile + s * 512 + lane * 16);
  }
  __device__ static void fragment(std::uint32_t (&a)[4], const Lane& r, int step) {
    a[0] = r.v[step].x;
    a[1] = r.v[step].y;
    a[2] = r.v[step].z;
    a[3] = r.v[step].w;
  }
};

// Eight-bit numbers, a scale for 32: RN16(d · q). Stored with 128 added.
struct Q8 {
  using Type = F16;
  static constexpr const char* kName = "Q8_0";
  static constexpr int kBytes = 1024 + 64;
  static constexpr int kRing = 4;
  struct Lane {
    uint4 v[2];
    uint2 scale;  // (g, g + 8) of the first 32, then of the second
  };
  template <class From>
  __device__ static void load(Lane& r, const std::uint8_t* tile, int lane) {
    r.v[0] = From::x4(tile + lane * 16);
    r.v[1] = From::x4(tile + 512 + lane * 16);
    r.scale = From::x2(tile + 1024 + lane / 4 * 8);
  }
  __device__ static void fragment(std::uint32_t (&a)[4], const Lane& r, int step) {
    const uint4& v = r.v[step / 2];
    const std::uint32_t scale = step / 2 == 0 ? r.scale.x : r.scale.y;
    const std::uint32_t row0 = step % 2 == 0 ? v.x : v.y;
    const std::uint32_t row8 = step % 2 == 0 ? v.z : v.w;
    a[0] = pair(row0, 0x4140, low_twice(scale));
    a[1] = pair(row8, 0x4140, high_twice(scale));
    a[2] = pair(row0, 0x4342, low_twice(scale));
    a[3] = pair(row8, 0x4342, high_twice(scale));
  }
  // Two bytes become 1024 + byte by being the low bits of a half.
  __device__ static std::uint32_t pair(std::uint32_t bytes, std::uint32_t select, __half2 scale) {
    const __half2 number = __hsub2(halves(__byte_perm(bytes, 0x64646464U, select)),
                                   __half2half2(__ushort_as_half(0x6480)));  // 1152
    return bits(__hmul2(number, scale));
  }
};

// Nibbles of 8 inputs in a word so that a mask and an "or" make two halves: inputs 2p, 2p + 1 at
// bits 4p and 4p + 16. Pairs 1 and 3 come out sixteen times too large.
__host__ __device__ inline int nibble_bit(int k) {
  return k / 2 * 4 + k % 2 * 16;
}

// Whole numbers - `Zero` of pair p as halves, exactly. Bits above the nibble come from `high`,
// where `HighMask` keeps them.
template <int Zero, std::uint32_t HighMask>
__device__ inline __half2 numbers(std::uint32_t word, int p, std::uint32_t high) {
  const std::uint32_t shifted = p < 2 ? word : word >> 8;
  std::uint32_t v = and_or(shifted, p % 2 == 0 ? 0x000F000FU : 0x00F000F0U, 0x64006400U);
  if constexpr (HighMask != 0) v = and_or(high, HighMask, v);
  if (p % 2 == 0) return __hsub2(halves(v), __float2half2_rn(1024.0F + Zero));
  return __hfma2(halves(v), __float2half2_rn(0.0625F), __float2half2_rn(-64.0F - Zero));
}
template <int Shift>
__device__ inline std::uint32_t shift_left(std::uint32_t v) {
  if constexpr (Shift >= 0) {
    return v << Shift;
  } else {
    return v >> -Shift;
  }
}

// Four- or five-bit numbers with scale and offset for 32: RN16(s · q + m), rounded once. Q4_0, Q4_1
// and Q4_K (five: Q5_0, Q5_1, Q5_K) all are this.
template <int Bits>
struct Affine {
  using Type = F16;
  static constexpr const char* kName = Bits == 4 ? "Q4_K" : "Q5_K";
  static constexpr int kBytes = 512 + (Bits == 5 ? 128 : 0) + 128;
  static constexpr int kRing = 4;
  struct Lane {
    uint4 v;      // (g, g + 8) of the first 32, then of the second
    uint4 scale;  // for each word of v: scale, offset
    std::uint32_t high;
  };
  template <class From>
  __device__ static void load(Lane& r, const std::uint8_t* tile, int lane) {
    r.v = From::x4(tile + lane * 16);
    r.scale = From::x4(tile + kBytes - 128 + lane / 4 * 16);
    if constexpr (Bits == 5) r.high = From::x1(tile + 512 + lane * 4);
  }
  __device__ static void fragment(std::uint32_t (&a)[4], const Lane& r, int step) {
    if (step < 2) {
      words<0>(a, r.v.x, r.v.y, r.scale.x, r.scale.y, r.high, step % 2);
    } else {
      words<2>(a, r.v.z, r.v.w, r.scale.z, r.scale.w, r.high, step % 2);
    }
  }

 private:
  template <int Word>
  __device__ static void words(std::uint32_t (&a)[4], std::uint32_t row0, std::uint32_t row8,
                               std::uint32_t scale0, std::uint32_t scale8, std::uint32_t high,
                               int step) {
    if (step == 0) {
      a[0] = pair<Word, 0>(row0, scale0, high);
      a[1] = pair<Word + 1, 0>(row8, scale8, high);
      a[2] = pair<Word, 1>(row0, scale0, high);
      a[3] = pair<Word + 1, 1>(row8, scale8, high);
    } else {
      a[0] = pair<Word, 2>(row0, scale0, high);
      a[1] = pair<Word + 1, 2>(row8, scale8, high);
      a[2] = pair<Word, 3>(row0, scale0, high);
      a[3] = pair<Word + 1, 3>(row8, scale8, high);
    }
  }
  // The fifth bits of pair P of word W stand at bits 4W + P and 4W + P + 16.
  template <int Word, int P>
  __device__ static std::uint32_t pair(std::uint32_t word, std::uint32_t scale,
                                       std::uint32_t high) {
    constexpr std::uint32_t kMask = Bits == 4 ? 0 : P % 2 == 0 ? 0x00100010U : 0x01000100U;
    const std::uint32_t above =
        Bits == 4 ? 0 : shift_left<(P % 2 == 0 ? 4 : 8) - (4 * Word + P)>(high);
    return bits(__hfma2(numbers<0, kMask>(word, P, above), low_twice(scale), high_twice(scale)));
  }
};

// Six-bit numbers, a scale for 16: RN16(s · (q - 32)).
struct Q6 {
  using Type = F16;
  static constexpr const char* kName = "Q6_K";
  static constexpr int kBytes = 512 + 256 + 128;
  static constexpr int kRing = 4;
  struct Lane {
    uint4 v;
    uint2 high;   // of the first 32, of the second
    uint2 scale;  // (g, g + 8) likewise
  };
  template <class From>
  __device__ static void load(Lane& r, const std::uint8_t* tile, int lane) {
    r.v = From::x4(tile + lane * 16);
    r.high = From::x2(tile + 512 + lane * 8);
    r.scale = From::x2(tile + 768 + (lane % 4 / 2 * 8 + lane / 4) * 8);
  }
  __device__ static void fragment(std::uint32_t (&a)[4], const Lane& r, int step) {
    const bool first = step < 2;
    const std::uint32_t row0 = first ? r.v.x : r.v.z;
    const std::uint32_t row8 = first ? r.v.y : r.v.w;
    const std::uint32_t high = first ? r.high.x : r.high.y;
    const std::uint32_t scale = first ? r.scale.x : r.scale.y;
    if (step % 2 == 0) {
      a[0] = pair<0, 0>(row0, high, low_twice(scale));
      a[1] = pair<1, 0>(row8, high, high_twice(scale));
      a[2] = pair<0, 1>(row0, high, low_twice(scale));
      a[3] = pair<1, 1>(row8, high, high_twice(scale));
    } else {
      a[0] = pair<0, 2>(row0, high, low_twice(scale));
      a[1] = pair<1, 2>(row8, high, high_twice(scale));
      a[2] = pair<0, 3>(row0, high, low_twice(scale));
      a[3] = pair<1, 3>(row8, high, high_twice(scale));
    }
  }

 private:
  // The upper bits of pair P stand at bits 2 · (4 · Row + P) and sixteen further.
  template <int Row, int P>
  __device__ static std::uint32_t pair(std::uint32_t word, std::uint32_t high, __half2 scale) {
    constexpr std::uint32_t kMask = P % 2 == 0 ? 0x00300030U : 0x03000300U;
    const std::uint32_t above = shift_left<(P % 2 == 0 ? 4 : 8) - 2 * (4 * Row + P)>(high);
    return bits(__hmul2(numbers<32, kMask>(word, P, above), scale));
  }
};

// A random matrix, packed, and the values it stands for (as floats, row by row).
struct HostMatrix {
  int outputs = 0;
  int inputs = 0;
  std::vector<std::uint8_t> packed;
  std::vector<float> values;
};

inline float half_value(float v) {
  return __half2float(__float2half_rn(v));
}
inline std::uint16_t half_word(float v) {
  const __half h = __float2half_rn(v);
  std::uint16_t r;
  std::memcpy(&r, &h, 2);
  return r;
}

// Puts one value of a tile in its place: output o of 16, input k of 64.
class TileWriter {
 public:
  TileWriter(std::uint8_t* tile, int o, int k)
      : tile_(tile), lane_(o % 8 * 4 + k % 32 / 8), o_(o), k_(k) {}

  void plain(std::uint16_t word) const {
    const int step = k_ / 32 * 2 + k_ % 8 / 4;
    put16(step * 512 + lane_ * 16 + (k_ % 4 / 2 * 2 + o_ / 8) * 4 + k_ % 2 * 2, word);
  }
  void q8(int q, std::uint16_t scale) const {
    tile_[k_ / 32 * 512 + lane_ * 16 + o_ / 8 * 8 + k_ % 8] = static_cast<std::uint8_t>(q + 128);
    put16(1024 + o_ % 8 * 8 + k_ / 32 * 4 + o_ / 8 * 2, scale);
  }
  void affine(int num_bits, int q, std::uint16_t scale, std::uint16_t offset) const {
    nibble(q);
    const int word = k_ / 32 * 2 + o_ / 8;
    if (num_bits == 5) or32(512 + lane_ * 4, (q >> 4) << (word * 4 + k_ % 8 / 2 + k_ % 2 * 16));
    const int at = (num_bits == 5 ? 640 : 512) + o_ % 8 * 16 + word * 4;
    put16(at, scale);
    put16(at + 2, offset);
  }
  void q6(int q, std::uint16_t scale) const {
    nibble(q);
    const int field = 2 * (o_ / 8 * 4 + k_ % 8 / 2) + k_ % 2 * 16;
    or32(512 + lane_ * 8 + k_ / 32 * 4, (q >> 4) << field);
    put16(768 + (k_ % 32 / 16 * 8 + o_ % 8) * 8 + k_ / 32 * 4 + o_ / 8 * 2, scale);
  }

 private:
  void nibble(int q) const {
    or32(lane_ * 16 + (k_ / 32 * 2 + o_ / 8) * 4, (q & 15) << nibble_bit(k_ % 8));
  }
  void put16(int at, std::uint16_t v) const { std::memcpy(tile_ + at, &v, 2); }
  void or32(int at, std::uint32_t v) const {
    std::uint32_t w;
    std::memcpy(&w, tile_ + at, 4);
    w |= v;
    std::memcpy(tile_ + at, &w, 4);
  }

  std::uint8_t* tile_;
  int lane_;
  int o_;
  int k_;
};

template <class Format>
HostMatrix random_matrix(int outputs, int inputs, std::uint64_t seed) {
  HostMatrix m{outputs, inputs, {}, {}};
  const int tiles = inputs / kTileInputs;
  m.packed.assign(static_cast<std::size_t>(outputs / kTileOutputs) * tiles * Format::kBytes, 0);
  m.values.resize(static_cast<std::size_t>(outputs) * inputs);
  Random random(seed);
  for (int o = 0; o < outputs; ++o) {
    float d = 0;
    float s = 0;
    float offset = 0;
    for (int k = 0; k < inputs; ++k) {
      const std::int64_t index = tile_index(o / 16, k / 64, tiles);
      const TileWriter write(m.packed.data() + index * Format::kBytes, o % 16, k % 64);
      float& value = m.values[static_cast<std::size_t>(o) * inputs + k];
      if constexpr (std::is_same_v<Format, Plain<F16>>) {
        value = half_value(random.normal() * 0.02F);
        write.plain(half_word(value));
      } else if constexpr (std::is_same_v<Format, Plain<BF16>>) {
        const __nv_bfloat16 v = __float2bfloat16_rn(random.normal() * 0.02F);
        value = __bfloat162float(v);
        std::uint16_t word;
        std::memcpy(&word, &v, 2);
        write.plain(word);
      } else if constexpr (std::is_same_v<Format, Q8>) {
        if (k % 32 == 0) d = half_value(random.uniform() * 1e-3F);
        const int q = static_cast<int>(random.bits() % 255) - 127;
        value = half_value(d * static_cast<float>(q));
        write.q8(q, half_word(d));
      } else if constexpr (std::is_same_v<Format, Q6>) {
        if (k % 256 == 0) d = half_value(random.uniform() * 1e-4F);
        if (k % 16 == 0) s = half_value(d * (static_cast<float>(random.bits() % 256) - 128));
        const int q = static_cast<int>(random.bits() % 64);
        value = half_value(s * static_cast<float>(q - 32));
        write.q6(q, half_word(s));
      } else {
        constexpr int kBits = std::is_same_v<Format, Affine<5>> ? 5 : 4;
        if (k % 256 == 0) d = half_value(random.uniform() * 2e-4F);
        if (k % 32 == 0) {
          s = half_value(d * static_cast<float>(random.bits() % 64));
          offset = -half_value(d * 8 * static_cast<float>(random.bits() % 64));
        }
        const int q = static_cast<int>(random.bits() % (1U << kBits));
        // q · s has at most 16 bits: the float product and sum round at most once before half.
        value = __half2float(__float2half_rn(
            static_cast<float>(static_cast<double>(s) * q + static_cast<double>(offset))));
        write.affine(kBits, q, half_word(s), half_word(offset));
      }
    }
  }
  return m;
}

}  // namespace lab
