// ModelConfig: the numbers and variations that make one transformer differ from another. Immutable
// once read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/ops.h"

namespace llorch::model {

using compute::NormKind;

// For messages.
std::string_view name(NormKind kind);
std::string_view name(compute::Activation kind);

enum class RopeScaling : std::uint8_t {
  None,
  Linear,    // every frequency divided by `factor`
  Llama3,    // long wavelengths divided by `factor`, short ones kept, those between blended
  Yarn,      // the same idea with a ramp over dimensions, and an attention factor
  LongRope,  // each frequency divided by its own divisor, and an attention factor
};

struct RopeParameters {
  double theta = 10000;
  std::int32_t rotary_dim = 0;  // values of a head that are rotated
  RopeScaling scaling = RopeScaling::None;
  double factor = 1;
  double original_context = 0;  // tokens the model was trained on before it was stretched
  double low_freq_factor = 1;   // Llama3
  double high_freq_factor = 4;  // Llama3
  double beta_fast = 32;        // Yarn
  double beta_slow = 1;         // Yarn
  bool truncate = true;         // Yarn: whole dimensions as the ramp's ends
  // Scales rotated values; absent: 1, except Yarn's and LongRope's own formulas.
  std::optional<double> attention_factor;
  // (rotary_dim / 2), dividing the frequencies one by one; empty: none. LongRope's factors, or the
  // "rope_freqs" tensor of a GGUF file.
  std::vector<double> divisors;
  // LongRope: which of its two sets `divisors` is; nothing where there is no choice.
  std::optional<bool> long_factors;
};

// Rotary positions, as the rope op wants them: scaling of every kind is already in these numbers.
struct RopeConfig {
  compute::RopeStyle style = compute::RopeStyle::Half;
  std::vector<float> frequencies;  // (rotary_dim / 2), radians per position
  float magnitude = 1.0F;
  RopeParameters recipe;  // what they were made of, for whoever writes the model to a file
};

// How one layer attends.
struct LayerAttention {
  std::int32_t window = 0;  // 0: sees everything before it
  std::int32_t rope = -1;   // index into ModelConfig::ropes; -1: no rotation
};

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
  bool tied_output = false;  // the token embedding is the output matrix
  bool qkv_bias = false;
  bool attn_out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;     // RMS norm of each query and key head before rotation
  bool post_norms = false;  // RMS norm of what attention and MLP add to the residual
  float embedding_scale = 1.0F;
  float attention_scale = 0;    // 0: 1/√head_dim
  float attention_softcap = 0;  // 0: none
  float logit_softcap = 0;      // 0: none
  // Of a model that is cut between layers (split.h) the first part alone embeds, the last alone has
  // logits.
  bool embeds = true;
  bool has_logits = true;
  std::vector<RopeConfig> ropes;
  std::vector<LayerAttention> attention;  // (num_layers); empty: no window, no rotation
  // "key = value" for each key that the file leaves out and for which the family's own default was
  // taken (architectures/defaults.h).
  std::vector<std::string> assumed;

  std::int32_t q_width() const { return num_heads * head_dim; }
  std::int32_t kv_width() const { return num_kv_heads * head_dim; }
  std::int32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  std::int32_t ffn_in_width() const { return gated_mlp ? 2 * ffn_dim : ffn_dim; }
  LayerAttention layer_attention(std::int32_t layer) const {
    return attention.empty() ? LayerAttention{} : attention[static_cast<std::size_t>(layer)];
  }
};

// Every number within the bounds that the rest of the model trusts: positive, not absurd, heads
// that divide.
Status validate(const ModelConfig& config);

}  // namespace llorch::model
