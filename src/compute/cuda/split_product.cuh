// Products of packed weights with 17 to 64 rows and few outputs: the blocks of a cluster share the
// inputs, slice by slice, and add the slices up out of each other's memory, ascending. The order of
// sums is narrow_product.cuh's. Needs wgmma: sm_90a.
#pragma once

#include "compute/cuda/wide_product.cuh"

namespace llorch::compute::cuda {

template <class Format>
struct SplitShape {
  static constexpr int kRows = 64;
  static constexpr int kThreads = 256;  // a warpgroup multiplies, one thread of another copies
  static constexpr int kMultiplyThreads = 128;
  static constexpr int kSlicesMax = 7;                  // of one block
  static constexpr int kRowStride = kGroupOutputs + 4;  // floats: no two lanes on a bank
  static constexpr int kSliceFloats = kRows * kRowStride;
  static constexpr int kInputBytes = kRows * kTileInputs * 2;
  static constexpr int kPieceBytes = kTileGroup * Format::kBytes;
  static constexpr int kStageBytes = kInputBytes + (kPieceBytes + 127) / 128 * 128;
  static constexpr int kSumBytes = kSlicesMax * kSliceFloats * 4;
  static constexpr int kStages = std::min(8, (220 * 1024 - kSumBytes) / kStageBytes);
  static constexpr int kShared = kSumBytes + kStages * kStageBytes + 2 * kStages * 8;
};

// The slices of block `rank` of a cluster.
struct SliceRange {
  int first;
  int end;
  __device__ static SliceRange of(const ProductArgs& args, int rank, int cluster) {
    const int slices = slices_of(args.tiles);
    const int each = (slices + cluster - 1) / cluster;
    return {min(slices, rank * each), min(slices, (rank + 1) * each)};
  }
};

__device__ inline float4 load_remote4(const float* shared, int rank) {
#if __CUDA_ARCH__ >= 900
  float4 v;
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];\n}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared_address(shared)), "r"(rank));
  return v;
#else
  __trap();
  return {};
#endif
}

#ifdef LLORCH_HAS_WGMMA
// One thread keeps the stages filled with the tiles of this block's slices.
template <class Format>
__device__ void copy_slices(const ProductArgs& args, const std::uint8_t* weight, int first_tile,
                            int end_tile, unsigned char* stages, std::uint64_t* full,
                            std::uint64_t* empty) {
  using Shape = SplitShape<Format>;
  const auto copy_weight = [&](int tile) {
    const int stage = (tile - first_tile) % Shape::kStages;
    barrier_expect(full + stage, Shape::kInputBytes + Shape::kPieceBytes);
    bulk_copy(stages + stage * Shape::kStageBytes + Shape::kInputBytes,
              weight + static_cast<std::int64_t>(tile) * Shape::kPieceBytes, Shape::kPieceBytes,
              full + stage);
  };
  const auto copy_input = [&](int tile) {
    const int stage = (tile - first_tile) % Shape::kStages;
    bulk_copy(stages + stage * Shape::kStageBytes,
              reinterpret_cast<const unsigned char*>(args.x) +
                  static_cast<std::int64_t>(tile) * Shape::kInputBytes,
              Shape::kInputBytes, full + stage);
  };
  const int ahead = min(end_tile, first_tile + Shape::kStages);
  for (int tile = first_tile; tile < ahead; ++tile) copy_weight(tile);
  after_previous();
  for (int tile = first_tile; tile < ahead; ++tile) copy_input(tile);
  for (int tile = ahead; tile < end_tile; ++tile) {
    const int turn = (tile - first_tile) / Shape::kStages;
    barrier_wait(empty + (tile - first_tile) % Shape::kStages, (turn + 1) % 2);
    copy_weight(tile);
    copy_input(tile);
  }
}

// The warpgroup's slices, each left in shared memory as (rows, kRowStride).
template <class Format>
__device__ void multiply_slices(const ProductArgs& args, const SliceRange& slices, float* sums_at,
                                const unsigned char* stages, std::uint64_t* full,
                                std::uint64_t* empty) {
  using Shape = SplitShape<Format>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_tile = slices.first * kSliceTiles;
  for (int slice = slices.first; slice < slices.end; ++slice) {
    float sums[Shape::kRows / 2];
#pragma unroll
    for (int i = 0; i < kSliceTiles; ++i) {
      const int tile = slice * kSliceTiles + i;
      if (tile >= args.tiles) break;
      const int stage = (tile - first_tile) % Shape::kStages;
      barrier_wait(full + stage, (tile - first_tile) / Shape::kStages % 2);
      const unsigned char* x = stages + stage * Shape::kStageBytes;
      typename Format::Lane held;
      Format::template load<ReadShared>(held, x + Shape::kInputBytes + warp * Format::kBytes, lane);
      std::uint32_t a[4][4];
#pragma unroll
      for (int step = 0; step < 4; ++step) Format::fragment(a[step], held, step);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma<Shape::kRows>(sums, a[step],
                            operand(x + step * Shape::kRows * 32, Shape::kRows * 16, 128),
                            i > 0 || step > 0 ? 1 : 0);
      wgmma_commit();
      wgmma_wait();
      wgmma_touch(sums);
      barrier_arrive(empty + stage);  // each lane for what it read
    }
    float* at = sums_at + (slice - slices.first) * Shape::kSliceFloats + warp * kTileOutputs +
                lane / 4 + lane % 4 * 2 * Shape::kRowStride;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 2; ++i)
      at[(i / 4 * 8 + i % 2) * Shape::kRowStride + i % 4 / 2 * 8] = sums[i];
  }
}

// This block's share of the outputs: slices of all blocks, ascending.
template <class Format, int Cluster>
__device__ void merge_slices(const ProductArgs& args, const ProductPart& part, int first_output,
                             int rank, const float* sums_at) {
  using Shape = SplitShape<Format>;
  constexpr int kQuads = kGroupOutputs / 4;
  for (int i = rank * 128 + static_cast<int>(threadIdx.x); i < args.rows * kQuads;
       i += Cluster * 128) {
    const int row = i / kQuads;
    const int quad = i % kQuads * 4;
    float total[4] = {};
    for (int block = 0; block < Cluster; ++block) {
      const SliceRange slices = SliceRange::of(args, block, Cluster);
      const float* at = sums_at + row * Shape::kRowStride + quad;
#pragma unroll 4
      for (int slice = slices.first; slice < slices.end; ++slice) {
        const float4 v = load_remote4(at, block);
        total[0] += v.x;
        total[1] += v.y;
        total[2] += v.z;
        total[3] += v.w;
        at += Shape::kSliceFloats;
      }
    }
    float* out = part.out + row * part.out_stride + first_output + quad;
    float before[4] = {};
    for (int j = 0; j < 4; ++j) {
      if (part.accumulate && first_output + quad + j < part.outputs) before[j] = out[j];
    }
    for (int j = 0; j < 4; ++j) {
      const int output = first_output + quad + j;
      if (output >= part.outputs) break;
      const float sum = part.bias != nullptr ? total[j] + part.bias[output] : total[j];
      out[j] = part.accumulate ? before[j] + sum : sum;
    }
  }
}
#endif  // LLORCH_HAS_WGMMA

template <class Format, int Cluster>
__global__ void __launch_bounds__(SplitShape<Format>::kThreads, 1)
    split_product(const __grid_constant__ ProductArgs args) {
#ifdef LLORCH_HAS_WGMMA
  using Shape = SplitShape<Format>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto* sums = reinterpret_cast<float*>(memory);
  unsigned char* stages = memory + Shape::kSumBytes;
  auto* full = reinterpret_cast<std::uint64_t*>(stages + Shape::kStages * Shape::kStageBytes);
  std::uint64_t* empty = full + Shape::kStages;
  const int rank = static_cast<int>(blockIdx.x) % Cluster;
  const int group = static_cast<int>(blockIdx.x) / Cluster;
  const ProductPart& part = part_of_group(args, group);
  const SliceRange slices = SliceRange::of(args, rank, Cluster);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, Shape::kMultiplyThreads);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const bool multiplies = threadIdx.x < Shape::kMultiplyThreads;
  if (multiplies) {
    multiply_slices<Format>(args, slices, sums, stages, full, empty);
  } else if (threadIdx.x == Shape::kMultiplyThreads) {
    const std::uint8_t* weight = part.weight + static_cast<std::int64_t>(group - part.first_group) *
                                                   args.tiles * Shape::kPieceBytes;
    copy_slices<Format>(args, weight, slices.first * kSliceTiles,
                        min(args.tiles, slices.end * kSliceTiles), stages, full, empty);
  }
  cluster_sync();
  wait_for_previous();  // what is added to
  if (multiplies)
    merge_slices<Format, Cluster>(args, part, (group - part.first_group) * kGroupOutputs, rank,
                                  sums);
  cluster_sync();  // nobody leaves while others read its memory
#else
  __trap();
#endif
}

template <class Format, int Cluster>
void launch_split(const ProductArgs& args, const Queue& queue) {
  launch_shaped("split product", split_product<Format, Cluster>, queue,
                {.blocks = dim3(static_cast<unsigned>(args.groups * Cluster)),
                 .threads = SplitShape<Format>::kThreads,
                 .shared_bytes = SplitShape<Format>::kShared,
                 .cluster = Cluster},
                args);
}

// Blocks of a cluster: as many as run at the same time. 1: the product is better off undivided.
template <class Format>
int cluster_for(const ProductArgs& args) {
  constexpr int kBlocksMax =
      128;  // one to a multiprocessor; a second round costs more than it gains
  const int slices = slices_of(args.tiles);
  if (args.rows > SplitShape<Format>::kRows) return 1;
  int cluster = 1;
  while (cluster < 8 && cluster * 2 <= slices && args.groups * cluster * 2 <= kBlocksMax)
    cluster *= 2;
  const int each = (slices + cluster - 1) / cluster;
  return each <= SplitShape<Format>::kSlicesMax ? cluster : 1;
}

template <class Format>
void launch_product_of(const ProductArgs& args, const Queue& queue) {
  if (args.block_bits == 0) return launch_narrow_chosen<Format>(args, queue);
  switch (cluster_for<Format>(args)) {
    case 2:
      return launch_split<Format, 2>(args, queue);
    case 4:
      return launch_split<Format, 4>(args, queue);
    case 8:
      return launch_split<Format, 8>(args, queue);
    default:
      return launch_wide_chosen<Format>(args, queue);
  }
}

}  // namespace llorch::compute::cuda
