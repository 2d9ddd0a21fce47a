// Products with packed weights, as launches.
#pragma once

#include "compute/cuda/head_places.h"
#include "compute/cuda/packed_layout.h"
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

// How the input rows of a product lie (RoundedTarget::block_bits).
inline constexpr int kNarrowRows = 16;  // up to as many rows are read as they lie
constexpr int block_bits_for(std::int64_t rows, bool has_wgmma) {
  if (!has_wgmma || rows <= kNarrowRows) return 0;
  return rows <= 64 ? 6 : 7;
}
// Where an op leaves its rows in 16 bits too, for the product that follows (rounded_rows.cuh).
struct RoundedTarget {
  std::uint16_t* data = nullptr;  // null: nobody wants them
  int block_bits = 0;             // log2 of the rows of a block; 0: row by row
  int stride = 0;                 // columns, in whole tiles
};

// At most three matrices that share an input: of one packed form, or of two that are mixed.
inline constexpr int kProductPartsMax = 3;
struct ProductPart {
  PackedForm form = PackedForm::None;
  const std::uint8_t* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int outputs = 0;
  int first_tile = 0;   // of 16 outputs, among those of all parts
  int first_group = 0;  // of 64 outputs, likewise
  bool accumulate = false;
};
struct ProductArgs {
  ProductPart parts[kProductPartsMax];
  int num_parts = 0;
  int output_tiles = 0;  // of all parts
  int groups = 0;
  int tiles = 0;  // of inputs
  int rows = 0;
  const std::uint16_t* x = nullptr;  // rounded rows
  int x_stride = 0;
  int block_bits = 0;
  // RMS norm of float rows inside the product, instead of x: rows <= 8, dim <= kNormInside.
  const float* norm_x = nullptr;
  std::int64_t norm_stride = 0;
  const float* gain = nullptr;
  int dim = 0;
  float epsilon = 0;
  // The two parts are gate and up of an MLP of up to 16 rows: what becomes of them is stored in
  // the first part's place, and in 16 bits too.
  bool is_gated = false;
  Activation activation = Activation::Silu;
  RoundedTarget rounded;
  // The outputs are queries, keys and values of up to 16 rows: they are turned, and stored in the
  // cache too.
  HeadPlaces heads;
};
inline constexpr int kNormInside = 2048;
// Whether a product is better off computing the norm of its rows by itself.
constexpr bool norms_inside(std::int64_t rows, std::int64_t dim, std::int64_t output_tiles) {
  return rows <= 4 && dim <= kNormInside && dim % kTileInputs == 0 && output_tiles <= 800;
}

// What the quantiser's mixtures give neighbours. Narrow products alone, and parts in whole blocks.
constexpr bool are_mixed(PackedForm first, PackedForm second) {
  return (first == PackedForm::Q4 || first == PackedForm::Q5) && second == PackedForm::Q6;
}
inline constexpr int kMixedOutputs = 256;  // parts of mixtures have a multiple of these

void launch_product(const ProductArgs& args, const Queue& queue);

// Each in a file of its own: they take the compiler long.
void launch_product_f16(const ProductArgs& args, const Queue& queue);
void launch_product_q8(const ProductArgs& args, const Queue& queue);
void launch_product_q4(const ProductArgs& args, const Queue& queue);
void launch_product_q5(const ProductArgs& args, const Queue& queue);
void launch_product_q6(const ProductArgs& args, const Queue& queue);
void launch_product_q4_and_q6(const ProductArgs& args, const Queue& queue);
void launch_product_q5_and_q6(const ProductArgs& args, const Queue& queue);

// What the compiled code and the device have together.
struct TensorCores {
  bool mma = false;               // products of packed weights at all
  bool wgmma = false;             // and with many rows at once
  std::int64_t shared_bytes = 0;  // that a block may have
};
TensorCores find_tensor_cores();

}  // namespace llorch::compute::cuda
