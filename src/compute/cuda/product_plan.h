// Which products become one launch, and what such a launch also does by itself: decided from shapes
// and forms alone, without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compute/cuda/head_places.h"
#include "compute/cuda/packed_layout.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

// What the compiled code and the device have together.
struct TensorCores {
  bool mma = false;               // products of packed weights at all
  bool wgmma = false;             // and with many rows at once
  std::int64_t shared_bytes = 0;  // that a block may have
};

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
// Weights that the next product reads, to be brought near while this one waits (weights_ahead.h).
struct Ahead {
  const std::uint8_t* from = nullptr;
  std::int64_t bytes = 0;  // a multiple of 16
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
  Ahead ahead[kProductPartsMax];
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

// The packed form that the target's weight is multiplied in, or None.
PackedForm form_of(const LinearTarget& target, const TensorCores& cores);

// Whether a product computes the norm of its rows by itself.
bool norms_inside(const NormLinearArgs& args, const TensorCores& cores);
// Gate and up of few rows, of one form: the product activates too.
bool gates_inside(const MlpInArgs& args, const TensorCores& cores);
// Where few rows of packed products can place heads by themselves.
std::optional<HeadPlaces> find_places(const ProjectHeadsArgs& args, const TensorCores& cores);

// How many targets, from the first on, are one launch: neighbours of one form, or of one and then
// of a second that mixes with it. The first has a packed form.
std::size_t count_together(std::span<const LinearTarget> targets, std::int64_t rows,
                           const TensorCores& cores);
// A launch with these targets as its parts; what it reads is left to the caller.
ProductArgs plan_outputs(std::span<const LinearTarget> targets, const TensorCores& cores);

}  // namespace llorch::compute::cuda
