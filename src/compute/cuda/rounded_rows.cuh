// Rows of 16-bit numbers as products read them: row by row where few are multiplied at a time, or
// in blocks and tiles for the copies of products with many rows.
#pragma once

#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"

namespace llorch::compute::cuda {

struct RoundedRows : RoundedTarget {
  // Pair of columns k, k + 1; k is even.
  __device__ void put2(int row, int k, float a, float b) const {
    const std::uint32_t low = half_bits(a);
    const std::uint32_t high = half_bits(b);
    *reinterpret_cast<std::uint32_t*>(data + place(row, k)) = low | (high << 16);
  }
  __device__ void put(int row, int k, float a) const { data[place(row, k)] = half_bits(a); }

 private:
  // Blocks of rows; in each tiles of 64 inputs; in each eight pieces of the block's rows x 16
  // bytes, inputs in the fragments' order.
  __device__ std::int64_t place(int row, int k) const {
    if (block_bits == 0) return static_cast<std::int64_t>(row) * stride + k;
    const unsigned tile = static_cast<unsigned>(row >> block_bits) * (stride / kTileInputs) +
                          static_cast<unsigned>(k) / kTileInputs;
    const int at = fragment_place(k % kTileInputs);
    const int in_block = row & ((1 << block_bits) - 1);
    return (static_cast<std::int64_t>(tile) << (block_bits + 6)) +
           ((((at / 8) << block_bits) + in_block) * 8 + at % 8);
  }
};

}  // namespace llorch::compute::cuda
