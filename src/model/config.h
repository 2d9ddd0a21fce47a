// ModelConfig: the numbers and variations that make one transformer differ from another. Immutable
// once read.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "compute/ops.h"

namespace llorch::model {

enum class NormKind : std::uint8_t { LayerNorm, RmsNorm };

struct ModelConfig {
  std::string architecture;  // our name for the family: "gpt2"
  std::string variant;       // "gpt2-medium" where the numbers are a published preset, else empty
  std::int32_t vocab_size = 0;
  std::int32_t context_length = 0;
  std::int32_t hidden_dim = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ffn_dim = 0;
  NormKind norm = NormKind::LayerNorm;
  float norm_epsilon = 0;
  compute::Activation activation = compute::Activation::GeluTanh;
  bool gated_mlp = false;
  bool learned_positions = false;

  std::int32_t q_width() const { return num_heads * head_dim; }
  std::int32_t kv_width() const { return num_kv_heads * head_dim; }
  std::int32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  std::int32_t ffn_in_width() const { return gated_mlp ? 2 * ffn_dim : ffn_dim; }
};

// Every number within the bounds that the rest of the model trusts: positive, not absurd, heads
// that divide.
Status validate(const ModelConfig& config);

}  // namespace llorch::model
