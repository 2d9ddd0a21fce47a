// Products of packed weights with many rows, in narrow.cuh's order of sums.
#pragma once

#include "packed.cuh"

namespace lab {

// Input rows for wide_product: blocks of N rows, in each tiles of 64 inputs, in each eight pieces
// of N rows x 16 bytes, inputs in the fragments' order. Rows beyond the last are zero.
template <int N>
__global__ void place_rows(const __half* x, int rows, int inputs, __half* out) {
  const int tiles = inputs / kTileInputs;
  const int tile = blockIdx.x;
  const std::int64_t block = blockIdx.y;
  for (int i = threadIdx.x; i < N * kTileInputs; i += blockDim.x) {
    const int row = i / kTileInputs;
    const int k = i % kTileInputs;
    const std::int64_t from = block * N + row;
    const __half value =
        from < rows ? x[from * inputs + tile * kTileInputs + k] : __half(__ushort_as_half(0));
    const int place = fragment_place(k);
    out[((block * tiles + tile) * N * kTileInputs) + (place / 8 * N + row) * 8 + place % 8] = value;
  }
}

struct Wide {
  const std::uint8_t* weight;
  int output_tiles;  // a multiple of 4
  int tiles;
  const __half* x;  // by place_rows
  int rows;
  float* out;  // (rows, stride)
  int stride;
};

// N rows x 64 · Groups outputs a block. Cluster blocks of neighbouring outputs copy a part of the
// input rows each, for all of them.
template <class Format, int N, int Groups, int Cluster>
struct WideShape {
  static constexpr int kThreads = Groups * 128 + 128;
  static constexpr int kInputBytes = N * kTileInputs * 2;
  static constexpr int kPieceBytes = kTileGroup * Format::kBytes;  // 64 outputs
  static constexpr int kStageBytes = kInputBytes + (Groups * kPieceBytes + 127) / 128 * 128;
  static constexpr int kStages = std::min(12, (220 * 1024) / kStageBytes);
  static constexpr int kShared = kStages * kStageBytes + 2 * kStages * 8;
};

// Where a block of the grid stands: blocks of all rows for some outputs, then for the next, so that
// weights come from memory once.
template <int N, int Groups, int Cluster>
struct WidePlace {
  int rank;
  int row_block;
  int first_group;  // of 64 outputs
  int present;      // of Groups
  __device__ explicit WidePlace(const Wide& args) {
    const int row_blocks = (args.rows + N - 1) / N;
    const int cluster = static_cast<int>(blockIdx.x) / Cluster;
    rank = static_cast<int>(blockIdx.x) % Cluster;
    row_block = cluster % row_blocks;
    first_group = (cluster / row_blocks * Cluster + rank) * Groups;
    present = max(0, min(Groups, args.output_tiles / kTileGroup - first_group));
  }
};

// One thread keeps the stages filled.
template <class Shape, int N, int Groups, int Cluster>
__device__ void copy_stages(const Wide& args, const WidePlace<N, Groups, Cluster>& place,
                            unsigned char* memory, std::uint64_t* full, std::uint64_t* empty) {
  const std::uint8_t* weight =
      args.weight + static_cast<std::int64_t>(place.first_group) * args.tiles * Shape::kPieceBytes;
  const auto* x = reinterpret_cast<const unsigned char*>(args.x) +
                  static_cast<std::int64_t>(place.row_block) * args.tiles * Shape::kInputBytes;
  constexpr int kPart = Shape::kInputBytes / Cluster;
  for (int tile = 0; tile < args.tiles; ++tile) {
    const int stage = tile % Shape::kStages;
    if (tile >= Shape::kStages) barrier_wait(empty + stage, (tile / Shape::kStages + 1) % 2);
    unsigned char* at = memory + stage * Shape::kStageBytes;
    barrier_expect(full + stage, Shape::kInputBytes + place.present * Shape::kPieceBytes);
    bulk_copy_to_all<Cluster>(
        at + place.rank * kPart,
        x + static_cast<std::int64_t>(tile) * Shape::kInputBytes + place.rank * kPart, kPart,
        full + stage);
    for (int i = 0; i < place.present; ++i)
      bulk_copy(at + Shape::kInputBytes + i * Shape::kPieceBytes,
                weight + (static_cast<std::int64_t>(i) * args.tiles + tile) * Shape::kPieceBytes,
                Shape::kPieceBytes, full + stage);
  }
}

// A warpgroup's 64 outputs x N rows. Weights of the next tile are decoded while one is multiplied.
template <class Format, class Shape, int N, int Cluster>
__device__ void multiply_stages(const Wide& args, const unsigned char* memory, std::uint64_t* full,
                                std::uint64_t* empty, float (&total)[N / 2]) {
  using Type = typename Format::Type;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
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
          wgmma<Type, N>(sums, a[i % 2][step], operand(x + step * N * 32, N * 16, 128),
                         i > 0 || step > 0 ? 1 : 0);
        wgmma_commit();
        if (tile + 1 < args.tiles) fetch(a[(i + 1) % 2], tile + 1);
        wgmma_wait<0>();
        wgmma_touch(sums);
        if (lane < Cluster) barrier_arrive_at<Cluster>(empty + stage, lane);
      }
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) total[i] += sums[i];
  }
}

// Groups warpgroups multiply; one more copies for all of them and gives its registers away.
template <class Format, int N, int Groups, int Cluster>
__global__ void __launch_bounds__(WideShape<Format, N, Groups, Cluster>::kThreads, 1)
    wide_product(Wide args) {
  using Shape = WideShape<Format, N, Groups, Cluster>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto* full = reinterpret_cast<std::uint64_t*>(memory + Shape::kStages * Shape::kStageBytes);
  std::uint64_t* empty = full + Shape::kStages;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const WidePlace<N, Groups, Cluster> place(args);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, Groups * 4 * Cluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync<Cluster>();
  if (warp >= Groups * 4) {
    if constexpr (Groups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == Groups * 128)
      copy_stages<Shape, N, Groups, Cluster>(args, place, memory, full, empty);
    __syncwarp();
    cluster_sync<Cluster>();  // nobody leaves while others still copy into its memory
    return;
  }
  if constexpr (Groups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float total[N / 2] = {};
  multiply_stages<Format, Shape, N, Cluster>(args, memory, full, empty, total);
  cluster_sync<Cluster>();
  if (warp >= place.present * 4) return;
  const int o = (place.first_group * kTileGroup + warp) * kTileOutputs + lane / 4;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int row = place.row_block * N + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (row < args.rows)
      args.out[static_cast<std::int64_t>(row) * args.stride + o + i % 4 / 2 * 8] = total[i];
  }
}

template <class Format, int N, int Groups, int Cluster>
void wide(const Wide& args, cudaStream_t stream) {
  using Shape = WideShape<Format, N, Groups, Cluster>;
  const auto kernel = wide_product<Format, N, Groups, Cluster>;
  LAB_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kShared));
  const int blocks = (args.output_tiles / kTileGroup + Groups - 1) / Groups;
  launch_clusters(kernel,
                  dim3((blocks + Cluster - 1) / Cluster * Cluster * ((args.rows + N - 1) / N)),
                  Cluster, Shape::kThreads, Shape::kShared, stream, false, args);
}

}  // namespace lab
