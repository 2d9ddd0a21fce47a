// A model's weights in the places the forward pass reads them, in device memory. Immutable after
// load.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "model/architecture.h"

namespace llorch::model {

struct Norm {
  compute::TensorView weight;  // (dim) F32
  compute::TensorView bias;    // (dim) F32, or null
};

struct Linear {
  compute::Weight weight;    // (out, in)
  compute::TensorView bias;  // (out) F32, or null
};

struct LayerWeights {
  Norm attn_norm;
  std::vector<Linear> qkv;  // one fused, or Q, K, V: their outputs stand side by side in one row
  Norm q_norm, k_norm;      // (head_dim), where the model has them
  Linear attn_out;
  Norm post_attn_norm;  // where the model has post norms
  Norm ffn_norm;
  std::vector<Linear> ffn_in;  // up; or gate and up, fused or apart, side by side in one row
  Linear ffn_out;
  Norm post_ffn_norm;
};

// A RopeConfig in device memory.
struct Rope {
  compute::TensorView frequencies;  // (rotary_dim / 2) F32
  compute::RopeStyle style = compute::RopeStyle::Half;
  float magnitude = 1.0F;
};

struct ModelWeights {
  compute::Weight token_embedding;                    // (vocab, hidden)
  std::optional<compute::Weight> position_embedding;  // (context, hidden)
  std::vector<LayerWeights> layers;
  std::vector<Rope> ropes;  // as ModelConfig::ropes
  Norm output_norm;
  std::optional<compute::Weight> output;  // absent: the token embedding serves
  compute::Buffer vectors;                // what every norm, bias and frequency view points into
  std::int64_t bytes = 0;                 // of all weights, wherever they live

  // Every buffer that a backend made for these weights; what is used in the file has none.
  std::vector<const compute::Buffer*> buffers() const;
  const compute::Weight& output_matrix() const { return output ? *output : token_embedding; }
};

// Hears of loading as it goes, in bytes of the file; false gives up (Cancelled).
using LoadProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Of all tensors of the plan, in the file.
std::int64_t weight_bytes(const ModelPlan& plan);

// Hands every tensor of the plan to the backend. The plan's file must outlive the result: a backend
// may use mapped bytes in place. What it copied is forgotten in the mapping, so that nothing is in
// memory twice.
Result<ModelWeights> load_weights(const formats::WeightFile& file, const ModelPlan& plan,
                                  compute::Backend& backend, const LoadProgress& progress = {});

}  // namespace llorch::model
