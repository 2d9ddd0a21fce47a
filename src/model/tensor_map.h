// Names in a file ↔ places in a transformer. An architecture lists what it expects; the map finds
// each tensor once and reports everything missing, extra or misshapen in one error.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_file.h"
#include "tensor/shape.h"

namespace llorch::model {

// What a tensor is for. Matrices map (in → out); vectors are norms and biases.
enum class Role : std::uint8_t {
  TokenEmbedding,
  PositionEmbedding,
  Output,  // absent: tied to the token embedding
  OutputNormWeight,
  OutputNormBias,
  AttnNormWeight,
  AttnNormBias,
  Qkv,  // the fused projection, or Q, K and V in this order
  QkvBias,
  QNormWeight,  // of each query head
  KNormWeight,  // of each key head
  AttnOut,
  AttnOutBias,
  PostAttnNormWeight,  // of attention's output, before the residual
  FfnNormWeight,
  FfnNormBias,
  FfnIn,  // up; or gate and up, fused or in this order
  FfnInBias,
  FfnOut,
  FfnOutBias,
  PostFfnNormWeight,  // of the MLP's output, before the residual
};

struct TensorSpec {
  Role role = Role::TokenEmbedding;
  std::int32_t layer = -1;  // -1: not part of a layer
  std::string name;         // as this file spells it
  tensor::Shape shape;      // as this file stores it
  bool transposed = false;  // a matrix stored (in, out) instead of (out, in)
  bool required = true;
  bool plus_one = false;  // a norm whose file keeps weight - 1

  bool is_matrix() const { return shape.rank() == 2; }  // else a vector
};

struct MappedTensor {
  TensorSpec spec;
  const formats::WeightTensor* tensor = nullptr;
};

// Specs with their tensors, in spec order; absent optional ones are left out. A tensor of the file
// that no spec names and `is_ignored` does not know is an error: a weight that is silently dropped
// changes the answers.
Result<std::vector<MappedTensor>> map_tensors(
    std::vector<TensorSpec> specs, const formats::WeightFile& file,
    const std::function<bool(std::string_view)>& is_ignored);

}  // namespace llorch::model
