// GPT-2: learned positions, LayerNorm, fused QKV with biases, tanh GELU, tied output.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/architecture.h"

namespace llorch::model {

// The published sizes; the head dimension is 64 and the context 1024 in all of them.
struct Gpt2Preset {
  std::string_view name;
  std::int32_t hidden_dim;
  std::int32_t num_layers;
  std::int32_t num_heads;
};
std::span<const Gpt2Preset> gpt2_presets();
ModelConfig make_gpt2_config(const Gpt2Preset& preset);

Architecture gpt2_architecture();

// Hugging Face weights of GPT-2 without a config.json: told by its two embedding tables.
bool looks_like_gpt2(const formats::WeightFile& file);

}  // namespace llorch::model
