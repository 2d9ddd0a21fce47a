// Attention of a run of rows of one sequence: a block for 64 (query, head) pairs of a key head.
#pragma once

#include "attention.cuh"

namespace lab {

// Rows first_row … of one sequence, at positions that follow each other.
struct Run {
  int first_row;
  int rows;
  int first_position;
  int sequence;
};

inline constexpr int kPrefillThreads = 128;
template <int Dim>
struct PrefillShape {
  static constexpr int kKeyStride = Dim + 32;
  static constexpr int kValueStride = Dim + 8;
  static constexpr int kStage = kKeyTile * (kKeyStride + kValueStride);
  static constexpr int kShared = 2 * kStage * 2;
};

// A warp's 16 pairs: what it holds from tile to tile.
template <int Dim>
struct PrefillWarp {
  std::uint32_t q[Dim / 16][4];
  int position0, position8;
  Running<Dim / 8> split;
  Running<Dim / 8> merged;  // of the splits before

  __device__ void add_tile(int tile, const __half* keys, const __half* values, float scale) {
    using Shape = PrefillShape<Dim>;
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    Part s[2];
    float max0 = -INFINITY, max8 = -INFINITY;
#pragma unroll
    for (int n = 0; n < 2 * kPartBlocks; ++n) {
      score8<Dim>(s[n / kPartBlocks][n % kPartBlocks], q, [&](int chunk) {
        return *reinterpret_cast<const uint4*>(keys + (n * 8 + g) * Shape::kKeyStride + t * 8 +
                                               chunk * 32);
      });
    }
    mask(s[0], tile * kKeyTile, scale, position0, position8, max0, max8);
    mask(s[1], tile * kKeyTile + 32, scale, position0, position8, max0, max8);
    const float2 fades = split.raise(max0, max8);
    float sum0[2], sum8[2];
    weigh(s[0], split.m0, split.m8, sum0[0], sum8[0]);
    weigh(s[1], split.m0, split.m8, sum0[1], sum8[1]);
    split.step(fades, sum0, sum8);
#pragma unroll
    for (int k = 0; k < kKeyTile; k += 16) {
      const Part& half = s[k / 32];
      const int n = k % 32 / 8;
      const std::uint32_t p[4] = {
          two_halves(half[n][0], half[n][1]), two_halves(half[n][2], half[n][3]),
          two_halves(half[n + 1][0], half[n + 1][1]), two_halves(half[n + 1][2], half[n + 1][3])};
#pragma unroll
      for (int c = 0; c < Dim; c += 16)
        add_values<Shape::kValueStride>(split.o[c / 8], split.o[c / 8 + 1], p, values, k, c);
    }
  }

  __device__ void end_split() {
    const float2 factors0 = merge_factors(merged.m0, split.m0);
    const float2 factors8 = merge_factors(merged.m8, split.m8);
    merged.l0 = merge(merged.l0, split.l0, factors0);
    merged.l8 = merge(merged.l8, split.l8, factors8);
#pragma unroll
    for (int c = 0; c < Dim / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        merged.o[c][i] = merge(merged.o[c][i], split.o[c][i], i < 2 ? factors0 : factors8);
    }
    split = Running<Dim / 8>();
  }
};

template <int Dim>
__global__ void __launch_bounds__(kPrefillThreads) prefill_attention(Attend args, Run run) {
  using Shape = PrefillShape<Dim>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto* stages = reinterpret_cast<__half*>(memory);
  const int kv_head = blockIdx.y;
  const int t = threadIdx.x % 4;
  const int pairs = run.rows * args.group;
  const int first_pair = (gridDim.x - 1 - blockIdx.x) * 64;  // the longest first
  const int pair0 = first_pair + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const auto row_of = [&](int pair) { return min(pair, pairs - 1) / args.group; };
  const auto offset = [&](int pair) {
    const std::int64_t group =
        static_cast<std::int64_t>(run.first_row + row_of(pair)) * args.cache.kv_heads + kv_head;
    return (group * args.group + min(pair, pairs - 1) % args.group) * Dim;
  };
  const int last = run.first_position + row_of(first_pair + 63);
  const int tiles = last / kKeyTile + 1;
  const auto copy_tile = [&](int tile) {
    if (tile < tiles) {
      __half* keys = stages + tile % 2 * Shape::kStage;
      copy_rows<Dim, Shape::kKeyStride, kPrefillThreads>(keys, args.cache.keys, args.cache,
                                                         run.sequence, kv_head, tile * kKeyTile,
                                                         kKeyTile, last + 1);
      copy_rows<Dim, Shape::kValueStride, kPrefillThreads>(
          keys + kKeyTile * Shape::kKeyStride, args.cache.values, args.cache, run.sequence, kv_head,
          tile * kKeyTile, kKeyTile, last + 1);
    }
    copy_async_commit();
  };
  copy_tile(0);
  PrefillWarp<Dim> warp;
  warp.position0 = run.first_position + row_of(pair0);
  warp.position8 = run.first_position + row_of(pair0 + 8);
  load_queries<Dim>(warp.q, args.q + offset(pair0) + t * 8, args.q + offset(pair0 + 8) + t * 8);
  for (int tile = 0; tile < tiles; ++tile) {
    copy_tile(tile + 1);
    copy_async_wait<1>();
    __syncthreads();
    const __half* keys = stages + tile % 2 * Shape::kStage;
    warp.add_tile(tile, keys, keys + kKeyTile * Shape::kKeyStride, args.scale);
    if (tile % kSplitTiles == kSplitTiles - 1 || tile + 1 == tiles) warp.end_split();
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = i < 2 ? pair0 : pair0 + 8;
    if (pair >= pairs) continue;
#pragma unroll
    for (int c = 0; c < Dim / 8; ++c)
      store_attended(args, offset(pair) + c * 8 + t * 2 + i % 2,
                     __fdiv_rn(warp.merged.o[c][i], i < 2 ? warp.merged.l0 : warp.merged.l8));
  }
}

template <int Dim>
void run_prefill(const Attend& args, const Run& run, cudaStream_t stream) {
  LAB_CHECK(cudaFuncSetAttribute(prefill_attention<Dim>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 PrefillShape<Dim>::kShared));
  launch(prefill_attention<Dim>, dim3((run.rows * args.group + 63) / 64, args.cache.kv_heads),
         kPrefillThreads, PrefillShape<Dim>::kShared, stream, false, args, run);
}

}  // namespace lab
