// Products of packed weights with 1 to 16 rows of 16-bit inputs. One order of sums, shared with
// wide.cuh: 256 inputs from zero in k16 steps, those slices ascending in float32. Which of the two
// computes a row, and beside which others, does not show in its bits.
#pragma once

#include "norm.cuh"
#include "packed.cuh"

namespace lab {

inline constexpr int kPartialStride = 20;  // floats of one row's 16 outputs: no two lanes on a bank
inline constexpr int kSharedRowPad = 32;   // halves between rows in shared memory: likewise

struct Narrow {
  const std::uint8_t* weight;
  int output_tiles;
  int tiles;  // of 64 inputs
  int rows;
};

// Input rows that are already 16 bits wide, in device memory. (Or Normed.)
struct Rounded {
  const __half* x;
  int stride;
  static constexpr bool kShared = false;
};

// What happens to the finished sums of outputs j and j + 8 of a tile, of one row.
struct Store {
  float* out;  // (rows, stride)
  int stride;
  const float* bias;
  bool accumulate;
  __device__ void operator()(int tile, int j, int row, float low, float high) const {
    const int o = tile * kTileOutputs + j;
    if (bias != nullptr) {
      low += bias[o];
      high += bias[o + 8];
    }
    float* at = out + static_cast<std::int64_t>(row) * stride + o;
    at[0] = accumulate ? at[0] + low : low;
    at[8] = accumulate ? at[8] + high : high;
  }
};

// Gate in the lower half of each tile, up in the upper: silu(gate) · up, rounded for the product
// that follows.
struct Gated {
  __half* out;
  int stride;
  __device__ void operator()(int tile, int j, int row, float gate, float up) const {
    const float value = gate / (1.0F + __expf(-gate)) * up;
    out[static_cast<std::int64_t>(row) * stride + tile * 8 + j] = __float2half_rn(value);
  }
};

// How a product spreads: warps of a block, tiles of weights in flight per warp, blocks that must
// fit on a multiprocessor.
template <int Warps, int Ring, int Blocks>
struct Spread {
  static constexpr int kWarps = Warps;
  static constexpr int kRing = Ring;
  static constexpr int kBlocks = Blocks;
  static_assert(kSliceTiles % kRing == 0);
};

// Warps that share the slices of one tile of outputs; a block's other warps take further tiles.
__host__ __device__ inline int warps_per_output_tile(int tiles, int warps) {
  int width = warps;
  while (width / 2 >= slices_of(tiles) && width > 1) width /= 2;
  return width;
}

// Adds the slices of a block's tiles ascending and hands the sums on.
template <int Blocks8, class Shape, class Finish>
__device__ void finish_tiles(const Narrow& args, const float* partial, const Finish& finish) {
  const int per_block = Shape::kWarps / warps_per_output_tile(args.tiles, Shape::kWarps);
  for (int i = threadIdx.x; i < per_block * Blocks8 * 64; i += Shape::kWarps * 32) {
    const int j = i % 8;
    const int row = i / 8 % (Blocks8 * 8);
    const int in_block = i / 8 / (Blocks8 * 8);
    const int tile = blockIdx.x * per_block + in_block;
    if (row >= args.rows || tile >= args.output_tiles) continue;
    const float* at = partial + (in_block * Blocks8 * 8 + row) * kPartialStride + j;
    float low = 0;
    float high = 0;
#pragma unroll 8
    for (int slice = 0; slice < slices_of(args.tiles); ++slice) {
      low += at[0];
      high += at[8];
      at += per_block * Blocks8 * 8 * kPartialStride;
    }
    finish(tile, j, row, low, high);
  }
}

template <int Blocks8, class Shape>
__host__ __device__ int partial_bytes(const Narrow& args) {
  const int per_block = Shape::kWarps / warps_per_output_tile(args.tiles, Shape::kWarps);
  return slices_of(args.tiles) * per_block * Blocks8 * 8 * kPartialStride * 4;
}

// A warp takes slices w, w + W, … of one tile of 16 outputs, keeps kRing tiles of 64 inputs in
// flight in registers, and leaves each slice's sums in shared memory. One function, and its pieces
// lambdas: as a class of small ones the same instructions came out in an order that cost 4 to 28 %.
template <class Format, int Blocks8, class Shape, class Input, class Finish>
__global__ void __launch_bounds__(Shape::kWarps * 32, Shape::kBlocks)
    narrow_product(Narrow args, Input input, Finish finish) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kRing = Shape::kRing;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int width = warps_per_output_tile(args.tiles, Shape::kWarps);
  const int per_block = Shape::kWarps / width;
  const int slices = slices_of(args.tiles);
  const int mine = warp % width;
  const int output_tile = blockIdx.x * per_block + warp / width;
  const bool active = output_tile < args.output_tiles;
  const std::uint8_t* weight =
      args.weight + tile_index(active ? output_tile : 0, 0, args.tiles) * Format::kBytes;
  const int end = active ? args.tiles : 0;
  const auto load_now = [&](typename Format::Lane& into, int tile) {
    Format::template load<Read>(into, weight + tile * (kTileGroup * Format::kBytes), lane);
  };
  const auto load = [&](typename Format::Lane& into, int tile) {
    if (tile < end) load_now(into, tile);
  };

  typename Format::Lane ring[kRing];
#pragma unroll
  for (int i = 0; i < kRing; ++i) load(ring[i], mine * kSliceTiles + i);
  wait_for_previous();
  release_next();

  auto* partial = reinterpret_cast<float*>(memory);
  const __half* x[Blocks8];
  {
    const __half* base = nullptr;
    int stride = 0;
    if constexpr (Input::kShared) {
      auto* rows = reinterpret_cast<__half*>(memory + partial_bytes<Blocks8, Shape>(args));
      stride = args.tiles * kTileInputs + kSharedRowPad;
      for (int row = 0; row < args.rows; ++row)
        norm_into<kPrologueHold>(input, input.x + static_cast<std::int64_t>(row) * input.dim,
                                 rows + row * stride);
      base = rows;
    } else {
      base = input.x;
      stride = input.stride;
    }
#pragma unroll
    for (int b = 0; b < Blocks8; ++b) {
      const int row = b * 8 + lane / 4;  // beyond the last row any row will do
      x[b] = base + static_cast<std::int64_t>(row < args.rows ? row : 0) * stride + lane % 4 * 8;
    }
  }

  const auto multiply = [&](float(&sums)[Blocks8][4], const typename Format::Lane& held, int tile) {
    using Type = typename Format::Type;
    uint4 b[2][Blocks8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < Blocks8; ++n)
        b[half][n] = *reinterpret_cast<const uint4*>(x[n] + tile * kTileInputs + half * 32);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[4];
      Format::fragment(a, held, half * 2);
#pragma unroll
      for (int n = 0; n < Blocks8; ++n) mma16816<Type>(sums[n], a, b[half][n].x, b[half][n].y);
      Format::fragment(a, held, half * 2 + 1);
#pragma unroll
      for (int n = 0; n < Blocks8; ++n) mma16816<Type>(sums[n], a, b[half][n].z, b[half][n].w);
    }
  };
  const auto leave = [&](const float(&sums)[Blocks8][4], int slice) {
    float* at = partial + (slice * per_block + warp / width) * (Blocks8 * 8 * kPartialStride);
#pragma unroll
    for (int n = 0; n < Blocks8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        at[(n * 8 + lane % 4 * 2 + i % 2) * kPartialStride + lane / 4 + i / 2 * 8] = sums[n][i];
    }
  };
  // Whole slices ask nothing between loads and products; the last one may be short.
  const int whole = end / kSliceTiles;
  int slice = mine;
  for (; slice < whole; slice += width) {
    float sums[Blocks8][4] = {};
    const bool more = slice + width < whole;
    const int next = (slice + width) * kSliceTiles;
#pragma unroll
    for (int i = 0; i < kSliceTiles; ++i) {
      multiply(sums, ring[i % kRing], slice * kSliceTiles + i);
      if (i + kRing < kSliceTiles) {
        load_now(ring[i % kRing], slice * kSliceTiles + i + kRing);
      } else if (more) {
        load_now(ring[i % kRing], next + i + kRing - kSliceTiles);
      }
    }
    if (!more) {
#pragma unroll
      for (int i = 0; i < kRing; ++i) load(ring[i], next + i);
    }
    leave(sums, slice);
  }
  if (slice < slices && active) {
    float sums[Blocks8][4] = {};
#pragma unroll
    for (int i = 0; i < kSliceTiles; ++i) {
      const int tile = slice * kSliceTiles + i;
      if (tile < end) multiply(sums, ring[i % kRing], tile);
      if (i + kRing < kSliceTiles) load(ring[i % kRing], tile + kRing);
    }
    leave(sums, slice);
  }
  __syncthreads();
  finish_tiles<Blocks8, Shape>(args, partial, finish);
}

template <class Format, int Blocks8, class Shape, class Input, class Finish>
void run_narrow(const Narrow& args, const Input& input, const Finish& finish, cudaStream_t stream,
                bool dependent) {
  const int per_block = Shape::kWarps / warps_per_output_tile(args.tiles, Shape::kWarps);
  const int rows_bytes =
      Input::kShared ? args.rows * (args.tiles * kTileInputs + kSharedRowPad) * 2 : 0;
  const int shared = partial_bytes<Blocks8, Shape>(args) + rows_bytes;
  static int allowed = 48 * 1024;
  const auto kernel = narrow_product<Format, Blocks8, Shape, Input, Finish>;
  if (shared > allowed) {
    allowed = shared;
    LAB_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  }
  launch(kernel, dim3((args.output_tiles + per_block - 1) / per_block), Shape::kWarps * 32, shared,
         stream, dependent, args, input, finish);
}
template <class Format, class Shape, class Input, class Finish>
void narrow(const Narrow& args, const Input& input, const Finish& finish, cudaStream_t stream,
            bool dependent) {
  if (args.rows <= 8) {
    run_narrow<Format, 1, Shape>(args, input, finish, stream, dependent);
  } else {
    run_narrow<Format, 2, Shape>(args, input, finish, stream, dependent);
  }
}

// The spread that measured best for a shape, or nearly: alone and within a step.
template <class Format, class Input, class Finish>
void narrow_chosen(const Narrow& args, const Input& input, const Finish& finish,
                   cudaStream_t stream, bool dependent) {
  constexpr bool kPlain = Format::kBytes >= 2048;
  const int slices = slices_of(args.tiles);
  if (args.rows > 8) {
    if (slices >= 8 && args.output_tiles <= 300)
      return narrow<Format, Spread<16, 2, 1>>(args, input, finish, stream, dependent);
    return narrow<Format, Spread<8, 2, 3>>(args, input, finish, stream, dependent);
  }
  if (slices >= 8 && args.output_tiles <= 160)
    return narrow<Format, Spread<16, 2, 1>>(args, input, finish, stream, dependent);
  if (!kPlain && slices >= 8 && args.output_tiles <= 300)
    return narrow<Format, Spread<16, 2, 2>>(args, input, finish, stream, dependent);
  if (args.output_tiles <= 300)
    return narrow<Format, Spread<8, 4, 2>>(args, input, finish, stream, dependent);
  if (kPlain) return narrow<Format, Spread<8, 2, 3>>(args, input, finish, stream, dependent);
  return narrow<Format, Spread<8, 2, 4>>(args, input, finish, stream, dependent);
}

}  // namespace lab
