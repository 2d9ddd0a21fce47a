// Products with packed weights, as launches.
#pragma once

#include "compute/cuda/product_plan.h"
#include "compute/cuda/queue.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

// Rows first_row … of a matrix, as the file has them, on their way into its tiles.
struct PackPiece {
  tensor::DType dtype = tensor::DType::F16;
  std::int64_t rows = 0;  // of the matrix
  std::int64_t cols = 0;
  std::int64_t first_row = 0;  // a multiple of kGroupOutputs
  std::int64_t num_rows = 0;   // of the piece
  const void* from = nullptr;  // the piece
  void* to = nullptr;          // the whole matrix
};
void launch_pack(const PackPiece& piece, const Queue& queue);

void launch_product(const ProductArgs& args, const Queue& queue);

// Each in a file of its own: they take the compiler long.
void launch_product_f16(const ProductArgs& args, const Queue& queue);
void launch_product_q8(const ProductArgs& args, const Queue& queue);
void launch_product_q4(const ProductArgs& args, const Queue& queue);
void launch_product_q5(const ProductArgs& args, const Queue& queue);
void launch_product_q6(const ProductArgs& args, const Queue& queue);
void launch_product_q4_and_q6(const ProductArgs& args, const Queue& queue);
void launch_product_q5_and_q6(const ProductArgs& args, const Queue& queue);

// Of the current device.
TensorCores find_tensor_cores();

}  // namespace llorch::compute::cuda
