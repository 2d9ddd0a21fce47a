// Attention over paged keys and values of 16-bit floats. Keys are cut at absolute positions: tiles
// of 64, splits of 128. Within a split the softmax runs over its tiles ascending; splits are merged
// ascending. Here is what decode_attention (a block per split) and prefill_attention (a block walks
// them all) share; a row's bits are the same in both.
//
// The heads of a group that share keys stand side by side as the rows of one 16-row operand.
#pragma once

#include <cstring>

#include "lab.cuh"
#include "tensor_core.cuh"

namespace lab {

inline constexpr int kKeyTile = 64;
inline constexpr int kSplitTiles = 2;
inline constexpr int kSplitKeys = kKeyTile * kSplitTiles;
inline constexpr int kPageTokens = 16;
inline constexpr int kGroupMax = 16;

struct Cache {  // (pages, kv_heads, kPageTokens, dim) each
  __half* keys;
  __half* values;
  const int* pages;  // (sequences, pages_max)
  int pages_max;
  int kv_heads;
};

template <int Dim>
__device__ inline std::int64_t cache_at(const Cache& cache, int sequence, int kv_head, int key) {
  const std::int64_t page = cache.pages[sequence * cache.pages_max + key / kPageTokens];
  return ((page * cache.kv_heads + kv_head) * kPageTokens + key % kPageTokens) * Dim;
}

struct Attend {
  const __half* q;  // (rows, heads, dim)
  __half* out;      // same
  float* exact;     // same before rounding, or null
  Cache cache;
  const int* positions;  // of each row
  const int* sequences;
  int group;  // heads that share keys
  float scale;
};

// Two powers of two apart: exp2 with minus infinity as "nothing yet".
__device__ inline float fade(float from, float to) {
  return from == -INFINITY ? 0.0F : exp2f(__fsub_rn(from, to));
}

// Eight keys' scores: `key(chunk)` gives 16 bytes of the lane's key for 32 dimensions.
template <int Dim, class Key>
__device__ inline void score8(float (&s)[4], const std::uint32_t (&q)[Dim / 16][4],
                              const Key& key) {
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = 0;
#pragma unroll
  for (int chunk = 0; chunk < Dim / 32; ++chunk) {
    const uint4 b = key(chunk);
    mma16816<F16>(s, q[chunk * 2], b.x, b.y);
    mma16816<F16>(s, q[chunk * 2 + 1], b.z, b.w);
  }
}

// Query fragments of rows g and g + 8, given where they begin.
template <int Dim>
__device__ inline void load_queries(std::uint32_t (&q)[Dim / 16][4], const __half* row0,
                                    const __half* row8) {
#pragma unroll
  for (int chunk = 0; chunk < Dim / 32; ++chunk) {
    const uint4 a = *reinterpret_cast<const uint4*>(row0 + chunk * 32);
    const uint4 b = *reinterpret_cast<const uint4*>(row8 + chunk * 32);
    q[chunk * 2][0] = a.x;
    q[chunk * 2][1] = b.x;
    q[chunk * 2][2] = a.y;
    q[chunk * 2][3] = b.y;
    q[chunk * 2 + 1][0] = a.z;
    q[chunk * 2 + 1][1] = b.z;
    q[chunk * 2 + 1][2] = a.w;
    q[chunk * 2 + 1][3] = b.w;
  }
}

// A quarter of a tile's work: the scores of 16 queries and 32 keys as a warp holds them. Sums over
// keys are taken within these 32 first.
inline constexpr int kPartBlocks = 4;
using Part = float[kPartBlocks][4];

// Scales, masks keys beyond each row's position, and raises the rows' maxima (of the whole quad).
__device__ inline void mask(Part& s, int first_key, float scale, int position0, int position8,
                            float& max0, float& max8) {
  const int column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < kPartBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = column + n * 8 + i % 2;
      const bool seen = key <= (i < 2 ? position0 : position8);
      s[n][i] = seen ? __fmul_rn(s[n][i], scale) : -INFINITY;
      if (i < 2) {
        max0 = fmaxf(max0, s[n][i]);
      } else {
        max8 = fmaxf(max8, s[n][i]);
      }
    }
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    max0 = fmaxf(max0, __shfl_xor_sync(0xFFFFFFFFU, max0, step));
    max8 = fmaxf(max8, __shfl_xor_sync(0xFFFFFFFFU, max8, step));
  }
}

// Scores become weights against the given maxima; returns the rows' sums.
__device__ inline void weigh(Part& s, float max0, float max8, float& sum0, float& sum8) {
  sum0 = 0;
  sum8 = 0;
#pragma unroll
  for (int n = 0; n < kPartBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = fade(s[n][i], i < 2 ? max0 : max8);
      if (i < 2) {
        sum0 = __fadd_rn(sum0, s[n][i]);
      } else {
        sum8 = __fadd_rn(sum8, s[n][i]);
      }
    }
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    sum0 = __fadd_rn(sum0, __shfl_xor_sync(0xFFFFFFFFU, sum0, step));
    sum8 = __fadd_rn(sum8, __shfl_xor_sync(0xFFFFFFFFU, sum8, step));
  }
}

__device__ inline std::uint32_t two_halves(float a, float b) {
  const __half2 v = __floats2half2_rn(a, b);
  std::uint32_t r;
  std::memcpy(&r, &v, 4);
  return r;
}

// o (16 x 16 columns, as two blocks of 8) += weights (16 x 16 keys) · values (16 keys x 16
// columns).
template <int Stride>
__device__ inline void add_values(float (&left)[4], float (&right)[4], const std::uint32_t (&p)[4],
                                  const __half* values, int key, int column) {
  const int lane = threadIdx.x % 32;
  std::uint32_t v[4];
  load_transposed(v, values + (key + lane % 16) * Stride + column + lane / 16 * 8);
  mma16816<F16>(left, p, v[0], v[1]);
  mma16816<F16>(right, p, v[2], v[3]);
}

// Rows of values (or keys) into shared memory; those from `end` on become zero.
template <int Dim, int Stride, int Threads>
__device__ inline void copy_rows(__half* shared, const __half* from, const Cache& cache,
                                 int sequence, int kv_head, int first_key, int keys, int end) {
  for (int i = threadIdx.x; i < keys * (Dim / 8); i += Threads) {
    const int key = first_key + i / (Dim / 8);
    __half* to = shared + i / (Dim / 8) * Stride + i % (Dim / 8) * 8;
    if (key < end) {
      copy_async16(to, from + cache_at<Dim>(cache, sequence, kv_head, key) + i % (Dim / 8) * 8);
    } else {
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    }
  }
}

// The running softmax of rows g and g + 8 within a split: maxima, sums, and values in Blocks blocks
// of 8 columns.
template <int Blocks>
struct Running {
  float o[Blocks][4] = {};
  float m0 = -INFINITY, m8 = -INFINITY, l0 = 0, l8 = 0;

  // Raises the maxima by those of the next tile; returns what fades what is there.
  __device__ float2 raise(float max0, float max8) {
    const float next0 = fmaxf(m0, max0);
    const float next8 = fmaxf(m8, max8);
    const float2 fades = make_float2(fade(m0, next0), fade(m8, next8));
    m0 = next0;
    m8 = next8;
    return fades;
  }
  // Fades, and adds the sums of the tile's two halves.
  __device__ void step(float2 fades, const float (&sum0)[2], const float (&sum8)[2]) {
    l0 = __fmaf_rn(l0, fades.x, __fadd_rn(sum0[0], sum0[1]));
    l8 = __fmaf_rn(l8, fades.y, __fadd_rn(sum8[0], sum8[1]));
#pragma unroll
    for (auto& block : o) {
      block[0] = __fmul_rn(block[0], fades.x);
      block[1] = __fmul_rn(block[1], fades.x);
      block[2] = __fmul_rn(block[2], fades.y);
      block[3] = __fmul_rn(block[3], fades.y);
    }
  }
};

// What the merge of splits multiplies the merged and the next one with; raises the maximum.
__device__ inline float2 merge_factors(float& m, float next_m) {
  const float top = fmaxf(m, next_m);
  const float2 factors = make_float2(fade(m, top), fade(next_m, top));
  m = top;
  return factors;
}
__device__ inline float merge(float merged, float next, float2 factors) {
  return __fmaf_rn(merged, factors.x, __fmul_rn(next, factors.y));
}

__device__ inline void store_attended(const Attend& args, std::int64_t at, float value) {
  args.out[at] = __float2half_rn(value);
  if (args.exact != nullptr) args.exact[at] = value;
}

}  // namespace lab
