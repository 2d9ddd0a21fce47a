#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/enum_names.h"

namespace llorch::model {
namespace {

// Far above any published model, low enough that no product of two overflows an int32_t width or an
// int64_t size.
constexpr std::int32_t kVocabMax = 4'000'000;
constexpr std::int32_t kContextMax = 16'777'216;
constexpr std::int32_t kWidthMax = 1'000'000;
constexpr std::int32_t kLayersMax = 1'000;
constexpr std::int32_t kHeadsMax = 1'024;
constexpr std::int32_t kHeadDimMax = 1'024;

Status check_range(std::string_view what, std::int32_t value, std::int32_t max) {
  if (value >= 1 && value <= max) return ok_status();
  return Error{ErrorCode::Corrupt, fmt::format("{} is {}, expected 1..{}", what, value, max)};
}

Status check_rotation(const ModelConfig& config) {
  for (const RopeConfig& rope : config.ropes) {
    const auto rotated = 2 * static_cast<std::int64_t>(rope.frequencies.size());
    if (rotated < 2 || rotated > config.head_dim) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("rotary positions cover {} of a head's {} values, expected 2..{}",
                               rotated, config.head_dim, config.head_dim)};
    }
    for (const float frequency : rope.frequencies) {
      if (!std::isfinite(frequency) || frequency < 0)
        return Error{ErrorCode::Corrupt, fmt::format("a rotary frequency is {}", frequency)};
    }
    if (!std::isfinite(rope.magnitude) || rope.magnitude <= 0) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("the rotary attention factor is {}, expected a positive number",
                               rope.magnitude)};
    }
  }
  for (const LayerAttention& attention : config.attention) {
    if (attention.window < 0) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("a sliding window is {}, expected 1 or more", attention.window)};
    }
    CHECK(attention.rope >= -1 && attention.rope < static_cast<std::int32_t>(config.ropes.size()));
  }
  CHECK(config.attention.empty() ||
        config.attention.size() == static_cast<std::size_t>(config.num_layers));
  return ok_status();
}

Status check_scales(const ModelConfig& config) {
  for (const auto& [what, value] : {std::pair{"embedding scale", config.embedding_scale},
                                    std::pair{"attention scale", config.attention_scale},
                                    std::pair{"attention softcap", config.attention_softcap},
                                    std::pair{"logit softcap", config.logit_softcap}}) {
    if (!std::isfinite(value) || value < 0) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("{} is {}, expected a positive number", what, value)};
    }
  }
  return ok_status();
}

}  // namespace

std::string_view name(NormKind kind) {
  return kind == NormKind::LayerNorm ? "LayerNorm" : "RMSNorm";
}

std::string_view name(compute::Activation kind) {
  static constexpr base::EnumNames<compute::Activation::Relu> kNames("gelu_tanh", "gelu", "silu",
                                                                     "relu");
  return kNames[kind];
}

Status validate(const ModelConfig& config) {
  for (const auto& [what, value, max] :
       {std::tuple{"vocabulary size", config.vocab_size, kVocabMax},
        std::tuple{"context length", config.context_length, kContextMax},
        std::tuple{"embedding length", config.hidden_dim, kWidthMax},
        std::tuple{"layer count", config.num_layers, kLayersMax},
        std::tuple{"head count", config.num_heads, kHeadsMax},
        std::tuple{"key/value head count", config.num_kv_heads, kHeadsMax},
        std::tuple{"head dimension", config.head_dim, kHeadDimMax},
        std::tuple{"feed-forward length", config.ffn_dim, kWidthMax}}) {
    if (Status in_range = check_range(what, value, max); !in_range.ok()) return in_range;
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("head count {} is not a multiple of the key/value head count {}",
                             config.num_heads, config.num_kv_heads)};
  }
  if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon <= 0 ||
      config.norm_epsilon > 0.1F) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("norm epsilon is {}, expected a small positive number", config.norm_epsilon)};
  }
  if (Status scales = check_scales(config); !scales.ok()) return scales;
  return check_rotation(config);
}

}  // namespace llorch::model
