// From the slices of a narrow product to what is stored: which tiles a block has, how their slices
// are added, and what becomes of the sums.
#pragma once

#include "compute/cuda/activate.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"
#include "compute/cuda/rounded_rows.cuh"

namespace llorch::compute::cuda {

inline constexpr int kPartialStride = 20;  // floats of one row's 16 outputs: no two lanes on a bank

// One thread of each block asks for its share of what the next product reads.
__device__ inline void ask_ahead(const ProductArgs& args) {
#if __CUDA_ARCH__ >= 900
  constexpr int kPiece = 8192;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * gridDim.y * kPiece;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kPiece;
#pragma unroll 1
  for (const Ahead& part : args.ahead) {
#pragma unroll 1
    for (std::int64_t at = first; at < part.bytes; at += stride) {
      const std::int64_t left = part.bytes - at;
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(part.from + at),
                   "r"(left < kPiece ? static_cast<int>(left) : kPiece)
                   : "memory");
    }
  }
#endif
}

// The part of a product that a tile of outputs belongs to.
__device__ inline const ProductPart& part_of_tile(const ProductArgs& args, int tile) {
  int part = 0;
  while (part + 1 < args.num_parts && tile >= args.parts[part + 1].first_tile) ++part;
  return args.parts[part];
}

// How a product spreads: warps of a block, tiles of weights in flight per warp, blocks that must
// fit on a multiprocessor.
template <int Warps, int Ring, int Blocks>
struct Spread {
  static constexpr int kWarps = Warps;
  static constexpr int kRing = Ring;
  static constexpr int kBlocks = Blocks;
  static_assert(kSliceTiles % kRing == 0);
};

// Whether values of two tiles are finished together: gate and up, or the halves of a head. Then a
// block has both.
__host__ __device__ inline bool has_tile_pairs(const ProductArgs& args) {
  return args.is_gated || args.heads.turns_halves;
}

// Warps that share the slices of one tile of outputs; a block's other warps take further tiles.
__host__ __device__ inline int warps_per_output_tile(const ProductArgs& args, int warps) {
  const int tiles = args.tiles;
  int width = has_tile_pairs(args) ? warps / 2 : warps;
  while (width / 2 >= slices_of(tiles) && width > 1) width /= 2;
  return width;
}

template <int Blocks8, class Shape>
__host__ __device__ int partial_bytes(const ProductArgs& args) {
  const int per_block = Shape::kWarps / warps_per_output_tile(args, Shape::kWarps);
  return slices_of(args.tiles) * per_block * Blocks8 * 8 * kPartialStride * 4;
}

// Which tile of outputs is tile `index` of the grid: those of a pair take turns.
__device__ inline int output_tile_at(const ProductArgs& args, int index) {
  if (args.is_gated) return index / 2 + index % 2 * args.parts[1].first_tile;
  if (!args.heads.turns_halves) return index;
  const int of_head = args.heads.head_dim / kTileOutputs;
  const int in_head = index % of_head;
  return index - in_head + in_head / 2 + in_head % 2 * (of_head / 2);
}

// Where a query, key or value of a row is: what follows from its number alone.
struct HeadValue {
  int kind = 0;     // 0: query, 1: key, 2: value
  int head = 0;     // of that kind
  int in_head = 0;  // which of its values

  // `output` counts from the first query's.
  __device__ HeadValue(const HeadPlaces& heads, int output) {
    if (output >= heads.q_outputs) {
      output -= heads.q_outputs;
      kind = output < heads.kv_outputs ? 1 : 2;
      if (kind == 2) output -= heads.kv_outputs;
    }
    head = output / heads.head_dim;
    in_head = output - head * heads.head_dim;
  }
  __device__ int pair(const HeadPlaces& heads) const {  // of the angles
    return heads.turns_halves ? in_head : in_head / 2;
  }
};

// What a thread finishes at once: two sums of one row, and what they meet in memory.
struct TwoOutputs {
  bool present = false;
  int row = 0;
  int tile = 0;    // of the first
  int output = 0;  // the first, in its part
  int from = 0;    // its first slice's place among the partial sums
  float bias[2] = {};
  float before[2] = {};  // what is added to; or the cosine and the sine of the angle
  int slot = 0;          // of the row, in the cache
};

// Adds up the slices of a block's tiles, ascending, and stores what becomes of them.
template <int Blocks8, class Shape>
class Finish {
 public:
  // How far the second of two outputs is from the first, where they are stored and in the sums.
  __device__ explicit Finish(const ProductArgs& args)
      : args_(args),
        per_block_(Shape::kWarps / warps_per_output_tile(args, Shape::kWarps)),
        has_pairs_(has_tile_pairs(args)),
        has_heads_(args.heads.slots != nullptr),
        apart_(args.is_gated             ? 0
               : args.heads.turns_halves ? args.heads.head_dim / 2
               : has_heads_              ? 1
                                         : kTileOutputs / 2),
        sums_apart_(has_pairs_ ? kTileFloats : apart_) {}

  __device__ int count() const { return per_block_ * Blocks8 * 64; }

  // Item `index` of count(), with all that is to be had before the slices are there. Nothing here
  // waits for what it fetches.
  __device__ TwoOutputs fetch(int index) const {
    TwoOutputs item;
    const int j = index % 8;
    const int row = index / 8 % (Blocks8 * 8);
    const int nth = index / 8 / (Blocks8 * 8);
    const int in_block = has_pairs_ ? nth / 2 * 2 : nth;
    const int column = has_pairs_ ? j + nth % 2 * 8 : has_heads_ ? 2 * j : j;
    const int place = static_cast<int>(blockIdx.x) * per_block_ + in_block;
    item.row = static_cast<int>(blockIdx.y) * Blocks8 * 8 + row;
    item.present = nth < per_block_ && item.row < args_.rows && place < args_.output_tiles;
    if (!item.present) return item;
    item.tile = output_tile_at(args_, place);
    const ProductPart& part = part_of_tile(args_, item.tile);
    item.output = (item.tile - part.first_tile) * kTileOutputs + column;
    item.from = in_block * kTileFloats + row * kPartialStride + column;
    fetch_bias(item, part);
    if (has_heads_) {
      fetch_angle(item, column);
    } else if (part.accumulate) {
      const float* at = part.out + item.row * part.out_stride + item.output;
      for (int i = 0; i < 2; ++i) {
        if (item.output + i * apart_ < part.outputs) item.before[i] = at[i * apart_];
      }
    }
    return item;
  }

  __device__ void store(const TwoOutputs& item, const float* partial) const {
    if (!item.present) return;
    float sums[2] = {};
    const float* at = partial + item.from;
    const int stride = per_block_ * kTileFloats;
#pragma unroll 8
    for (int slice = 0; slice < slices_of(args_.tiles); ++slice) {
      sums[0] += at[0];
      sums[1] += at[sums_apart_];
      at += stride;
    }
    if (args_.is_gated) return store_gated(item, sums);
    const ProductPart& part = part_of_tile(args_, item.tile);
    if (part.bias != nullptr) {
      sums[0] += item.bias[0];
      sums[1] += item.bias[1];
    }
    float* out = part.out + item.row * part.out_stride + item.output;
    if (has_heads_) return store_head(item, out, sums);
    for (int i = 0; i < 2; ++i) {
      if (item.output + i * apart_ < part.outputs)
        out[i * apart_] = part.accumulate ? item.before[i] + sums[i] : sums[i];
    }
  }

 private:
  static constexpr int kTileFloats = Blocks8 * 8 * kPartialStride;  // of a slice

  __device__ void fetch_bias(TwoOutputs& item, const ProductPart& part) const {
    const ProductPart& second = args_.is_gated ? args_.parts[1] : part;
    if (part.bias != nullptr && item.output < part.outputs) item.bias[0] = part.bias[item.output];
    if (second.bias != nullptr && item.output + apart_ < second.outputs)
      item.bias[1] = second.bias[item.output + apart_];
  }
  __device__ void fetch_angle(TwoOutputs& item, int column) const {
    const HeadPlaces& heads = args_.heads;
    const HeadValue value(heads, heads.first_output + item.tile * kTileOutputs + column);
    if (value.kind > 0) item.slot = heads.slots[item.row];
    if (heads.angles == nullptr || value.kind == 2) return;
    const float* angles = heads.angles + item.row * heads.angle_stride + value.pair(heads);
    item.before[0] = angles[0];
    item.before[1] = angles[heads.head_dim / 2];
  }

  // What becomes of gate and up.
  __device__ void store_gated(const TwoOutputs& item, const float (&sums)[2]) const {
    const ProductPart& part = args_.parts[0];
    if (item.output >= part.outputs) return;
    const float gate = part.bias != nullptr ? sums[0] + item.bias[0] : sums[0];
    const float up = args_.parts[1].bias != nullptr ? sums[1] + item.bias[1] : sums[1];
    const float value = activate(args_.activation, gate) * up;
    part.out[item.row * part.out_stride + item.output] = value;
    if (args_.rounded.data != nullptr) RoundedRows{args_.rounded}.put(item.row, item.output, value);
  }

  // The roundings are those of place_heads.
  __device__ void store_head(const TwoOutputs& item, float* out, float (&values)[2]) const {
    const HeadPlaces& heads = args_.heads;
    const ProductPart& part = part_of_tile(args_, item.tile);
    const HeadValue value(heads, heads.first_output + part.first_tile * kTileOutputs + item.output);
    if (heads.angles != nullptr && value.kind < 2) {
      const float a = values[0];
      const float b = values[1];
      values[0] = a * item.before[0] - b * item.before[1];
      values[1] = a * item.before[1] + b * item.before[0];
    }
    for (int i = 0; i < 2; ++i) out[i * apart_] = values[i];
    if (value.kind == 0) return;
    const bool is_key = value.kind == 1;
    const CacheShape& shape = is_key ? heads.key_shape : heads.value_shape;
    void* cache = is_key ? heads.keys : heads.values;
    const int tokens = static_cast<int>(shape.block_tokens);
    require(item.slot >= 0 && item.slot / tokens < shape.blocks);
    const std::int64_t at =
        cache_offset(shape, item.slot / tokens, value.head, item.slot % tokens) + value.in_head;
    for (int i = 0; i < 2; ++i) {
      if (heads.has_halves) {
        static_cast<__half*>(cache)[at + i * apart_] = __float2half_rn(values[i]);
      } else {
        static_cast<float*>(cache)[at + i * apart_] = values[i];
      }
    }
  }

  const ProductArgs& args_;
  int per_block_;
  bool has_pairs_;
  bool has_heads_;
  int apart_;
  int sums_apart_;
};

// All of a block come here, each with its slices left. `next`: its first item.
template <int Blocks8, class Shape>
__device__ void finish_tiles(const Finish<Blocks8, Shape>& finish, TwoOutputs next,
                             const float* partial) {
  constexpr int kThreads = Shape::kWarps * 32;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < finish.count(); i += kThreads) {
    const TwoOutputs item = next;
    if (i + kThreads < finish.count()) next = finish.fetch(i + kThreads);
    finish.store(item, partial);
  }
}

}  // namespace llorch::compute::cuda
