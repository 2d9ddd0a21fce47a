// What decode_attention (a block per split) and prefill_attention (a block walks them all) share; a
// row's bits are the same in both. Within a split the softmax runs over its tiles ascending; splits
// are merged ascending. The heads of a group that share keys stand side by side as the rows of one
// 16-row operand. Queries are halves; weights are two halves each, so that they lose nothing.
#pragma once

#include <cstring>

#include "compute/cuda/indexing.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/rounded_rows.cuh"
#include "compute/cuda/tensor_core.cuh"
#include "compute/cuda/tiled_attention.h"

namespace llorch::compute::cuda {

struct Attend {
  const float* q;  // (rows, heads, dim)
  std::int64_t q_stride;
  float* out;  // same
  std::int64_t out_stride;
  RoundedRows rounded;
  const void* keys;  // halves or Q8_0
  const void* values;
  CacheShape cache;
  bool is_quantised;
  int block_bits;  // log2 of the tokens of a block
  RowPlaces places;
  int heads;
  int group;  // heads that share keys
  float scale;
  float softcap;
  int window;
};

inline constexpr float kLog2E = 1.4426950408889634F;

// How eight values of a cache, counted in values, come into shared memory as halves: copied, which
// is there after copy_async_wait(), …
struct HalfRows {
  __device__ static void copy8(__half* to, const void* from, std::int64_t at) {
    copy_async16(to, static_cast<const __half*>(from) + at);
  }
};
// … or opened: Q8_0's scale times each quant, rounded once; what is finite beyond halves becomes
// the largest of them.
struct QuantRows {
  __device__ static void copy8(__half* to, const void* from, std::int64_t at) {
    constexpr int kBlockBytes = 34;  // the scale, and 32 quants
    const auto* words = reinterpret_cast<const std::uint16_t*>(
        static_cast<const std::uint8_t*>(from) + at / 32 * kBlockBytes);
    const __half2 scale = __half2half2(__ushort_as_half(words[0]));
    words += 1 + at % 32 / 2;
    std::uint32_t opened[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) opened[i] = open2(scale, words[i]);
    *reinterpret_cast<uint4*>(to) = make_uint4(opened[0], opened[1], opened[2], opened[3]);
  }

 private:
  // Two quants: each with its sign bit turned is 128 more, and 0x6400 below it 1024 more, as a
  // half.
  __device__ static std::uint32_t open2(__half2 scale, std::uint32_t quants) {
    const std::uint32_t raised = __byte_perm(quants ^ 0x8080U, 0x64646464U, 0x4140U);
    __half2 pair;
    std::memcpy(&pair, &raised, sizeof(pair));
    pair = __hmul2_rn(scale, __hsub2_rn(pair, __float2half2_rn(1152.0F)));
    pair = __hmin2_nan(pair, __float2half2_rn(65504.0F));
    pair = __hmax2_nan(pair, __float2half2_rn(-65504.0F));
    std::uint32_t bits;
    std::memcpy(&bits, &pair, sizeof(bits));
    return bits;
  }
};

// Where the head_dim values of a key are.
template <int Dim>
__device__ inline std::int64_t cache_at(const Attend& args, int sequence, int kv_head, int key) {
  const std::int64_t block =
      args.places.block_tables[sequence * args.places.table_stride + (key >> args.block_bits)];
  require(block >= 0 && block < args.cache.blocks);
  const int token = key & ((1 << args.block_bits) - 1);
  return block * args.cache.block_stride +
         ((static_cast<std::int64_t>(kv_head) << args.block_bits) + token) * Dim;
}

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
    mma16816(s, q[chunk * 2], b.x, b.y);
    mma16816(s, q[chunk * 2 + 1], b.z, b.w);
  }
}

// Two neighbours, rounded to halves.
__device__ inline std::uint32_t two_halves(float a, float b) {
  return half_bits(a) | (static_cast<std::uint32_t>(half_bits(b)) << 16);
}

// Query fragments of rows g and g + 8, given where they begin.
template <int Dim, class Four>
__device__ inline void load_queries(std::uint32_t (&q)[Dim / 16][4], const float* row0,
                                    const float* row8, const Four& four) {
#pragma unroll
  for (int chunk = 0; chunk < Dim / 32; ++chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 a = four(row0 + chunk * 32 + half * 4);
      const float4 b = four(row8 + chunk * 32 + half * 4);
      q[chunk * 2 + half][0] = two_halves(a.x, a.y);
      q[chunk * 2 + half][1] = two_halves(b.x, b.y);
      q[chunk * 2 + half][2] = two_halves(a.z, a.w);
      q[chunk * 2 + half][3] = two_halves(b.z, b.w);
    }
  }
}
template <int Dim>
__device__ inline void load_queries(std::uint32_t (&q)[Dim / 16][4], const float* row0,
                                    const float* row8) {
  const std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(row0) | reinterpret_cast<std::uintptr_t>(row8);
  if (bits % sizeof(float4) == 0) {
    load_queries<Dim>(q, row0, row8,
                      [](const float* at) { return *reinterpret_cast<const float4*>(at); });
  } else {
    load_queries<Dim>(q, row0, row8,
                      [](const float* at) { return make_float4(at[0], at[1], at[2], at[3]); });
  }
}

// A quarter of a tile's work: the scores of 16 queries and 32 keys as a warp holds them. Sums over
// keys are taken within these 32 first.
inline constexpr int kPartBlocks = 4;
using Part = float[kPartBlocks][4];

// The keys that a row sees.
struct Seen {
  int first;
  int last;
  __device__ static Seen at(const Attend& args, int position) {
    return {static_cast<int>(first_visible(position, args.window)), position};
  }
};

// Caps scores, which are scaled already. Apart from the rest: most models have no cap, and code
// that is skipped value by value is fetched all the same.
__device__ __noinline__ inline float cap_score(float score, float cap) {
  return __fmul_rn(cap, tanhf(__fdiv_rn(score, cap)));
}
__device__ inline void scale_scores(Part& s, const Attend& args) {
#pragma unroll
  for (int n = 0; n < kPartBlocks; ++n) {
#pragma unroll
    for (float& score : s[n]) score = __fmul_rn(score, args.scale);
  }
  if (args.softcap <= 0) return;
#pragma unroll
  for (int n = 0; n < kPartBlocks; ++n) {
#pragma unroll
    for (float& score : s[n]) score = cap_score(score, args.softcap);
  }
}

// Scales, caps, masks what each row does not see, and raises the rows' maxima (of the whole quad).
__device__ inline void mask(Part& s, int first_key, const Attend& args, const Seen& row0,
                            const Seen& row8, float& max0, float& max8) {
  scale_scores(s, args);
  const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kPartBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = column + n * 8 + i % 2;
      const Seen& row = i < 2 ? row0 : row8;
      s[n][i] = key >= row.first && key <= row.last ? __fmul_rn(s[n][i], kLog2E) : -INFINITY;
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

// Two weights as halves, and what the halves leave of them.
struct WeightPair {
  std::uint32_t high;
  std::uint32_t low;
  __device__ static WeightPair of(float a, float b) {
    const __half2 high = __floats2half2_rn(a, b);
    const float2 back = __half22float2(high);
    const __half2 low = __floats2half2_rn(__fsub_rn(a, back.x), __fsub_rn(b, back.y));
    WeightPair pair;
    std::memcpy(&pair.high, &high, 4);
    std::memcpy(&pair.low, &low, 4);
    return pair;
  }
};

// o (16 x 16 columns, as two blocks of 8) += weights (16 x 16 keys) · values (16 keys x 16
// columns), low halves of the weights first.
template <int Stride>
__device__ inline void add_values(float (&left)[4], float (&right)[4],
                                  const std::uint32_t (&high)[4], const std::uint32_t (&low)[4],
                                  const __half* values, int key, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t v[4];
  load_transposed(v, values + (key + lane % 16) * Stride + column + lane / 16 * 8);
  mma16816(left, low, v[0], v[1]);
  mma16816(right, low, v[2], v[3]);
  mma16816(left, high, v[0], v[1]);
  mma16816(right, high, v[2], v[3]);
}

// Rows of values (or keys) into shared memory; those from `end` on become zero.
template <int Dim, int Stride, int Threads, class Rows>
__device__ inline void copy_rows(__half* shared, const void* from, const Attend& args, int sequence,
                                 int kv_head, int first_key, int keys, int end) {
  for (int i = static_cast<int>(threadIdx.x); i < keys * (Dim / 8); i += Threads) {
    const int key = first_key + i / (Dim / 8);
    __half* to = shared + i / (Dim / 8) * Stride + i % (Dim / 8) * 8;
    if (key < end) {
      Rows::copy8(to, from, cache_at<Dim>(args, sequence, kv_head, key) + i % (Dim / 8) * 8);
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

// `column`: of the row's heads side by side.
__device__ inline void store_attended(const Attend& args, std::int64_t row, int column,
                                      float value) {
  args.out[row * args.out_stride + column] = value;
  if (args.rounded.data != nullptr) args.rounded.put(static_cast<int>(row), column, value);
}

// Of two neighbours, the first at an even column.
__device__ inline void store_two_attended(const Attend& args, std::int64_t row, int column,
                                          float first, float second) {
  float* out = args.out + row * args.out_stride + column;
  out[0] = first;
  out[1] = second;
  if (args.rounded.data != nullptr) args.rounded.put2(static_cast<int>(row), column, first, second);
}

void launch_decode_attention(const Attend& args, std::int64_t first_row, std::int64_t rows,
                             int splits, const SplitWorkspace& workspace, const Queue& queue);
void launch_prefill_attention(const Attend& args, const SequenceRun& run, const Queue& queue);

// Calls function(std::integral_constant<int, Dim>, Rows) for the size of a head and what the cache
// holds.
template <class Function>
void with_heads(const Attend& args, Function&& function) {
  const auto with_dim = [&](auto rows) {
    switch (args.cache.head_dim) {
      case 64:
        return function(std::integral_constant<int, 64>(), rows);
      case 96:
        return function(std::integral_constant<int, 96>(), rows);
      case 128:
        return function(std::integral_constant<int, 128>(), rows);
      default:
        CHECK(args.cache.head_dim == 256);
        return function(std::integral_constant<int, 256>(), rows);
    }
  };
  if (args.is_quantised) return with_dim(QuantRows());
  with_dim(HalfRows());
}

}  // namespace llorch::compute::cuda
