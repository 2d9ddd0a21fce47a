// Weights as the tensor cores want them. A matrix is cut into tiles of 16 outputs x 64 inputs, each
// contiguous; four tiles of the same inputs stand together, then those of the next 64 inputs, so
// that 64 outputs x 64 inputs are one piece of memory for the kernels that copy. Within 32 inputs
// lane (g, t) holds inputs 8t .. 8t + 7 of outputs g and g + 8: one load of 16 bytes feeds whole
// fragments, and an input row is read 16 bytes at a time as it lies. So the k16 step s of 32 inputs
// is the set {8t + 4s .. 8t + 4s + 3}, for every kernel alike.
//
// A format says which registers a lane fills from a tile, and how those become the fragment of
// step 0 .. 3. pack.cu makes tiles.
#pragma once

#include <cstring>

#include "compute/cuda/packed_layout.h"
#include "compute/cuda/tensor_core.cuh"

namespace llorch::compute::cuda {

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

// Byte of a 16-bit number in a tile of plain numbers: output o of 16, input k of 64.
__host__ __device__ inline int number_place(int o, int k) {
  const int lane = o % 8 * 4 + k % 32 / 8;
  const int step = k / 32 * 2 + k % 8 / 4;
  return step * 512 + lane * 16 + (k % 4 / 2 * 2 + o / 8) * 4 + k % 2 * 2;
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

// Halves as they are.
struct HalfTile {
  static constexpr PackedForm kForm = PackedForm::F16;
  static constexpr int kBytes = tile_bytes(kForm);
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
struct Q8Tile {
  static constexpr PackedForm kForm = PackedForm::Q8;
  static constexpr int kBytes = tile_bytes(kForm);
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

// Four- or five-bit numbers with scale and offset for 32: RN16(s · q + m), rounded once.
template <int Bits>
struct AffineTile {
  static constexpr PackedForm kForm = Bits == 4 ? PackedForm::Q4 : PackedForm::Q5;
  static constexpr int kBytes = tile_bytes(kForm);
  static constexpr int kScales = kBytes - 128;
  struct Lane {
    uint4 v;      // (g, g + 8) of the first 32, then of the second
    uint4 scale;  // for each word of v: scale, offset
    std::uint32_t high;
  };
  template <class From>
  __device__ static void load(Lane& r, const std::uint8_t* tile, int lane) {
    r.v = From::x4(tile + lane * 16);
    r.scale = From::x4(tile + kScales + lane / 4 * 16);
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
struct Q6Tile {
  static constexpr PackedForm kForm = PackedForm::Q6;
  static constexpr int kBytes = tile_bytes(kForm);
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

}  // namespace llorch::compute::cuda
