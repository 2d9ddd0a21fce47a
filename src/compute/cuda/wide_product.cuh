// Products of packed weights with many rows, in narrow_product.cuh's order of sums. Needs wgmma:
// sm_90a.
#pragma once

#include <algorithm>

#include "compute/cuda/launch.cuh"
#include "compute/cuda/narrow_product.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"

namespace llorch::compute::cuda {

// N rows x 64 · Groups outputs a block.
template <class Format, int N, int Groups>
struct WideShape {
  static constexpr int kThreads = Groups * 128 + 128;
  static constexpr int kInputBytes = N * kTileInputs * 2;
  static constexpr int kPieceBytes = kTileGroup * Format::kBytes;  // 64 outputs
  static constexpr int kStageBytes = kInputBytes + (Groups * kPieceBytes + 127) / 128 * 128;
  static constexpr int kStages = std::min(12, (220 * 1024) / kStageBytes);
  static constexpr int kShared = kStages * kStageBytes + 2 * kStages * 8;
};

// The part that a group of 64 outputs belongs to.
__device__ inline const ProductPart& part_of_group(const ProductArgs& args, int group) {
  int part = 0;
  while (part + 1 < args.num_parts && group >= args.parts[part + 1].first_group) ++part;
  return args.parts[part];
}

// Where a block of the grid stands: blocks of all rows for some outputs, then for the next, so that
// weights come from memory once.
template <int N, int Groups>
struct WidePlace {
  int row_block;
  int first_group;  // of 64 outputs
  int present;      // of Groups
  __device__ explicit WidePlace(const ProductArgs& args) {
    const int row_blocks = (args.rows + N - 1) / N;
    row_block = static_cast<int>(blockIdx.x) % row_blocks;
    first_group = static_cast<int>(blockIdx.x) / row_blocks * Groups;
    present = min(Groups, args.groups - first_group);
  }
};

#ifdef LLORCH_HAS_WGMMA
// One thread keeps the stages filled. Weights are no kernel's result, so the first stages' are on
// their way before the kernel that makes the rows has ended.
template <class Shape, int N, int Groups>
__device__ void copy_stages(const ProductArgs& args, const WidePlace<N, Groups>& place,
                            unsigned char* memory, std::uint64_t* full, std::uint64_t* empty) {
  const std::uint8_t* weights[Groups];
  for (int i = 0; i < place.present; ++i) {
    const ProductPart& part = part_of_group(args, place.first_group + i);
    weights[i] = part.weight + static_cast<std::int64_t>(place.first_group + i - part.first_group) *
                                   args.tiles * Shape::kPieceBytes;
  }
  const auto* x = reinterpret_cast<const unsigned char*>(args.x) +
                  static_cast<std::int64_t>(place.row_block) * args.tiles * Shape::kInputBytes;
  const auto copy_weights = [&](int tile) {
    const int stage = tile % Shape::kStages;
    barrier_expect(full + stage, Shape::kInputBytes + place.present * Shape::kPieceBytes);
    for (int i = 0; i < place.present; ++i) {
      bulk_copy(memory + stage * Shape::kStageBytes + Shape::kInputBytes + i * Shape::kPieceBytes,
                weights[i] + static_cast<std::int64_t>(tile) * Shape::kPieceBytes,
                Shape::kPieceBytes, full + stage);
    }
  };
  const auto copy_rows = [&](int tile) {
    const int stage = tile % Shape::kStages;
    bulk_copy(memory + stage * Shape::kStageBytes,
              x + static_cast<std::int64_t>(tile) * Shape::kInputBytes, Shape::kInputBytes,
              full + stage);
  };
  const int first = min(args.tiles, Shape::kStages);
  for (int tile = 0; tile < first; ++tile) copy_weights(tile);
  after_previous();
  for (int tile = 0; tile < first; ++tile) copy_rows(tile);
  for (int tile = first; tile < args.tiles; ++tile) {
    barrier_wait(empty + tile % Shape::kStages, (tile / Shape::kStages + 1) % 2);
    copy_weights(tile);
    copy_rows(tile);
  }
}

// A warpgroup's 64 outputs x N rows. Weights of the next tile are decoded while one is multiplied.
template <class Format, class Shape, int N>
__device__ void multiply_stages(const ProductArgs& args, const unsigned char* memory,
                                std::uint64_t* full, std::uint64_t* empty, float (&total)[N / 2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[N / 2];
  std::uint32_t a[2][4][4];
  const auto fetch = [&](std::uint32_t(&into)[4][4], int tile) {
    const int stage = tile % Shape::kStages;
    barrier_wait(full + stage, tile / Shape::kStages % 2);
    typename Format::Lane held;
    Format::template load<ReadShared>(
        held, memory + stage * Shape::kStageBytes + Shape::kInputBytes + warp * Format::kBytes,
        lane);
#pragma unroll
    for (int step = 0; step < 4; ++step) Format::fragment(into[step], held, step);
  };
  fetch(a[0], 0);
  for (int slice = 0; slice * kSliceTiles < args.tiles; ++slice) {
#pragma unroll
    for (int i = 0; i < kSliceTiles; ++i) {
      const int tile = slice * kSliceTiles + i;
      if (tile < args.tiles) {
        const int stage = tile % Shape::kStages;
        const unsigned char* x = memory + stage * Shape::kStageBytes;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step)
          wgmma<N>(sums, a[i % 2][step], operand(x + step * N * 32, N * 16, 128),
                   i > 0 || step > 0 ? 1 : 0);
        wgmma_commit();
        if (tile + 1 < args.tiles) fetch(a[(i + 1) % 2], tile + 1);
        wgmma_wait();
        wgmma_touch(sums);
        barrier_arrive_warp(empty + stage, lane);
      }
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += sums[i];
  }
}
#endif  // LLORCH_HAS_WGMMA

// A lane's sums: of outputs o and o + 8, in pairs of rows eight apart. What is added to is fetched
// for several at once: one by one each would wait for the one before.
template <int N>
__device__ void store_sums(const ProductArgs& args, const ProductPart& part, int first_row, int o,
                           const float (&total)[N / 2]) {
  constexpr int kAtOnce = 16;
  const bool is_there[2] = {o < part.outputs, o + 8 < part.outputs};
  float bias[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (part.bias != nullptr && is_there[i]) bias[i] = part.bias[o + i * 8];
  }
#pragma unroll
  for (int begin = 0; begin < N / 2; begin += kAtOnce) {
    float before[kAtOnce] = {};
    const auto place_of = [&](int i, int& row) {
      row = first_row + (begin + i) / 4 * 8 + i % 2;
      return part.out + row * part.out_stride + o + i % 4 / 2 * 8;
    };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      int row = 0;
      const float* at = place_of(i, row);
      if (part.accumulate && row < args.rows && is_there[i % 4 / 2]) before[i] = *at;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      int row = 0;
      float* at = place_of(i, row);
      const float sum =
          part.bias != nullptr ? total[begin + i] + bias[i % 4 / 2] : total[begin + i];
      if (row < args.rows && is_there[i % 4 / 2]) *at = part.accumulate ? before[i] + sum : sum;
    }
  }
}

// Groups warpgroups multiply; one more copies for all of them and gives its registers away.
template <class Format, int N, int Groups>
__global__ void __launch_bounds__(WideShape<Format, N, Groups>::kThreads, 1)
    wide_product(const __grid_constant__ ProductArgs args) {
#ifdef LLORCH_HAS_WGMMA
  using Shape = WideShape<Format, N, Groups>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto* full = reinterpret_cast<std::uint64_t*>(memory + Shape::kStages * Shape::kStageBytes);
  std::uint64_t* empty = full + Shape::kStages;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WidePlace<N, Groups> place(args);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, Groups * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warp >= Groups * 4) {
    if constexpr (Groups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == Groups * 128)
      copy_stages<Shape, N, Groups>(args, place, memory, full, empty);
    return;
  }
  if constexpr (Groups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float total[N / 2] = {};
  multiply_stages<Format, Shape, N>(args, memory, full, empty, total);
  wait_for_previous();  // what is added to below
  if (warp >= place.present * 4) return;
  const int group = place.first_group + warp / 4;
  const ProductPart& part = part_of_group(args, group);
  const int o = (group - part.first_group) * kGroupOutputs + warp % 4 * kTileOutputs + lane / 4;
  store_sums<N>(args, part, place.row_block * N + lane % 4 * 2, o, total);
#else
  __trap();
#endif
}

template <class Format, int N, int Groups>
void launch_wide(const ProductArgs& args, const Queue& queue) {
  using Shape = WideShape<Format, N, Groups>;
  const int blocks = (args.groups + Groups - 1) / Groups * ((args.rows + N - 1) / N);
  launch_shaped("wide product", wide_product<Format, N, Groups>, queue,
                {.blocks = dim3(static_cast<unsigned>(blocks)),
                 .threads = Shape::kThreads,
                 .shared_bytes = Shape::kShared},
                args);
}

// Two groups a block unless that leaves multiprocessors without work: a block of one group takes
// nearly as long.
inline bool takes_two_groups(const ProductArgs& args) {
  constexpr int kMultiprocessors = 132;
  const int row_blocks = (args.rows + (1 << args.block_bits) - 1) >> args.block_bits;
  const auto rounds = [&](int groups) {
    return (groups * row_blocks + kMultiprocessors - 1) / kMultiprocessors;
  };
  const int tenths_of_two = args.block_bits == 6 ? 7 : 8;  // what a block of one group takes
  return rounds((args.groups + 1) / 2) * 10 <= rounds(args.groups) * tenths_of_two;
}

template <class Format>
void launch_wide_chosen(const ProductArgs& args, const Queue& queue) {
  const bool has_two = takes_two_groups(args);
  if (args.block_bits == 6) {
    if (has_two) return launch_wide<Format, 64, 2>(args, queue);
    return launch_wide<Format, 64, 1>(args, queue);
  }
  if (has_two) return launch_wide<Format, 128, 2>(args, queue);
  return launch_wide<Format, 128, 1>(args, queue);
}

}  // namespace llorch::compute::cuda
