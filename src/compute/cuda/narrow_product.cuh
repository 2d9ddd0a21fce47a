// Products of packed weights with up to 16 rows at a time. One order of sums, shared with
// wide_product.cuh: 256 inputs from zero in k16 steps, those slices ascending in float32. Which of
// the two computes a row, and beside which others, does not show in its bits.
#pragma once

#include "compute/cuda/finish_product.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"
#include "compute/cuda/row_norm.cuh"

namespace llorch::compute::cuda {

// 16-bit numbers between rows in shared memory: no two lanes on a bank.
inline constexpr int kSharedRowPad = 32;

// A warp takes slices w, w + W, … of one tile of 16 outputs, keeps kRing tiles of 64 inputs in
// flight in registers, and leaves each slice's sums in shared memory. One function, and its pieces
// lambdas: as a class of small ones the same instructions came out in an order that cost 4 to 28 %.
template <class Format, int Blocks8, class Shape, bool NormInside>
__device__ __forceinline__ void multiply_narrow(const ProductArgs& args, unsigned char* memory) {
  constexpr int kRing = Shape::kRing;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int width = warps_per_output_tile(args, Shape::kWarps);
  const int per_block = Shape::kWarps / width;
  const int slices = slices_of(args.tiles);
  const int mine = warp % width;
  const int place = static_cast<int>(blockIdx.x) * per_block + warp / width;
  const bool active = place < args.output_tiles;
  const int output_tile = output_tile_at(args, place);
  const ProductPart& part = part_of_tile(args, active ? output_tile : 0);
  const std::uint8_t* weight =
      part.weight +
      tile_index(active ? output_tile - part.first_tile : 0, 0, args.tiles) * Format::kBytes;
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
  [[maybe_unused]] const Gains gains(args.gain, NormInside ? args.dim : 0);
  touch(args);
  if (threadIdx.x == 0) ask_ahead(args);
  after_previous();
  // What the sums will meet in memory is fetched now where registers allow.
  constexpr bool kFetchesFirst = Shape::kWarps * Shape::kBlocks <= 16;
  const Finish<Blocks8, Shape> finish(args);
  TwoOutputs item;
  if constexpr (kFetchesFirst) item = finish.fetch(static_cast<int>(threadIdx.x));

  auto* partial = reinterpret_cast<float*>(memory);
  const std::uint16_t* x[Blocks8];
  {
    const int first_row = static_cast<int>(blockIdx.y) * Blocks8 * 8;
    const std::uint16_t* base = args.x;
    int stride = args.x_stride;
    if constexpr (NormInside) {
      auto* rows = reinterpret_cast<std::uint16_t*>(memory + partial_bytes<Blocks8, Shape>(args));
      stride = args.tiles * kTileInputs + kSharedRowPad;
      const RoundedRows into{{.data = rows, .block_bits = 0, .stride = stride}};
      for (int row = 0; row < args.rows; ++row)
        norm_into_shared(args.norm_x + row * args.norm_stride, gains, args.dim, args.epsilon, into,
                         row);
      base = rows;
    }
#pragma unroll
    for (int b = 0; b < Blocks8; ++b) {
      const int row = first_row + b * 8 + lane / 4;  // beyond the last row any row will do
      x[b] = base + static_cast<std::int64_t>(row < args.rows ? row : 0) * stride + lane % 4 * 8;
    }
  }

  const auto multiply = [&](float(&sums)[Blocks8][4], const typename Format::Lane& held, int tile) {
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
      for (int n = 0; n < Blocks8; ++n) mma16816(sums[n], a, b[half][n].x, b[half][n].y);
      Format::fragment(a, held, half * 2 + 1);
#pragma unroll
      for (int n = 0; n < Blocks8; ++n) mma16816(sums[n], a, b[half][n].z, b[half][n].w);
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
  if constexpr (!kFetchesFirst) item = finish.fetch(static_cast<int>(threadIdx.x));
  finish_tiles<Blocks8, Shape>(finish, item, partial);
}

// Parts of two forms in one launch: a block's tiles are all of one.
template <class FirstFormat, class SecondFormat>
struct Mixed {
  using First = FirstFormat;
  using Second = SecondFormat;
  static constexpr int kBytes = First::kBytes;
};
template <class Format>
concept IsMixed = requires {
  typename Format::Second;
};

template <class Format, int Blocks8, class Shape, bool NormInside>
__global__ void __launch_bounds__(Shape::kWarps * 32, Shape::kBlocks)
    narrow_product(const __grid_constant__ ProductArgs args) {
  extern __shared__ __align__(128) unsigned char memory[];
  if constexpr (IsMixed<Format>) {
    const int per_block = Shape::kWarps / warps_per_output_tile(args, Shape::kWarps);
    const int first = output_tile_at(args, static_cast<int>(blockIdx.x) * per_block);
    if (part_of_tile(args, first).form == Format::Second::kForm) {
      multiply_narrow<typename Format::Second, Blocks8, Shape, NormInside>(args, memory);
    } else {
      multiply_narrow<typename Format::First, Blocks8, Shape, NormInside>(args, memory);
    }
  } else {
    multiply_narrow<Format, Blocks8, Shape, NormInside>(args, memory);
  }
}

template <class Format, int Blocks8, class Shape, bool NormInside = false>
void launch_narrow(const ProductArgs& args, const Queue& queue) {
  const int per_block = Shape::kWarps / warps_per_output_tile(args, Shape::kWarps);
  const int rows_bytes =
      NormInside ? args.rows * (args.tiles * kTileInputs + kSharedRowPad) * 2 : 0;
  const int panels = (args.rows + Blocks8 * 8 - 1) / (Blocks8 * 8);
  launch_shaped(
      "narrow product", narrow_product<Format, Blocks8, Shape, NormInside>, queue,
      {.blocks = dim3(static_cast<unsigned>((args.output_tiles + per_block - 1) / per_block),
                      static_cast<unsigned>(panels)),
       .threads = Shape::kWarps * 32,
       .shared_bytes = static_cast<std::size_t>(partial_bytes<Blocks8, Shape>(args) + rows_bytes)},
      args);
}

// The spread that measured best for a shape, or nearly: alone and within a step. No bit depends on
// it.
template <class Format>
void launch_narrow_chosen(const ProductArgs& args, const Queue& queue) {
  constexpr bool kPlain = Format::kBytes >= 2048;
  const int slices = slices_of(args.tiles);
  const bool few_tiles = args.output_tiles <= 300;
  if (args.norm_x != nullptr) {
    if (slices >= 8 && args.output_tiles <= 160)
      return launch_narrow<Format, 1, Spread<16, 2, 1>, true>(args, queue);
    if (few_tiles) return launch_narrow<Format, 1, Spread<8, 4, 2>, true>(args, queue);
    return launch_narrow<Format, 1, Spread<8, 2, kPlain ? 3 : 4>, true>(args, queue);
  }
  // 16 rows at once where their slices fit a block's memory on every card.
  constexpr int kSharedMost = 96 * 1024;
  if (args.rows > 8 && partial_bytes<2, Spread<16, 2, 1>>(args) <= kSharedMost &&
      partial_bytes<2, Spread<8, 2, 3>>(args) <= kSharedMost) {
    if (slices >= 8 && few_tiles) return launch_narrow<Format, 2, Spread<16, 2, 1>>(args, queue);
    return launch_narrow<Format, 2, Spread<8, 2, 3>>(args, queue);
  }
  if (slices >= 8 && args.output_tiles <= 160)
    return launch_narrow<Format, 1, Spread<16, 2, 1>>(args, queue);
  if (!kPlain && slices >= 8 && few_tiles)
    return launch_narrow<Format, 1, Spread<16, 2, 2>>(args, queue);
  if (few_tiles) return launch_narrow<Format, 1, Spread<8, 4, 2>>(args, queue);
  return launch_narrow<Format, 1, Spread<8, 2, kPlain ? 3 : 4>>(args, queue);
}

}  // namespace llorch::compute::cuda
