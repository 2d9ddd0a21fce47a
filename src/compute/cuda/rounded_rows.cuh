// Rows of 16-bit numbers as products read them: row by row where few are multiplied at a time, or
// in blocks and tiles for the copies of products with many rows.
#pragma once

#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"

namespace llorch::compute::cuda {

struct RoundedRows : RoundedTarget {
  // Pair of columns k, k + 1; k is even.
  __device__ void put2(std::int64_t row, int k, float a, float b) const {
    const std::uint32_t low = round(a);
    const std::uint32_t high = round(b);
    *reinterpret_cast<std::uint32_t*>(data + place(row, k)) = low | (high << 16);
  }
  __device__ void put(std::int64_t row, int k, float a) const { data[place(row, k)] = round(a); }

 private:
  __device__ std::uint16_t round(float v) const {
    return is_bfloat16 ? bfloat16_bits(v) : half_bits(v);
  }
  // Blocks of block_rows rows; in each tiles of 64 inputs; in each eight pieces of block_rows rows
  // x 16 bytes, inputs in the fragments' order.
  __device__ std::int64_t place(std::int64_t row, int k) const {
    if (block_rows == 0) return row * stride + k;
    const std::int64_t tile = row / block_rows * (stride / kTileInputs) + k / kTileInputs;
    const int at = fragment_place(k % kTileInputs);
    const int in_block = static_cast<int>(row % block_rows);
    return tile * (block_rows * kTileInputs) + (at / 8 * block_rows + in_block) * 8 + at % 8;
  }
};

}  // namespace llorch::compute::cuda
