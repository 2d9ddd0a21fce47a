#include "tools/gguf_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "model/architectures/defaults.h"

namespace llorch::tools {
namespace {

using formats::ElementType;
using formats::Metadata;
using model::ModelConfig;
using model::RopeParameters;
using model::RopeScaling;

// Collects keys under one prefix; the first failure stays.
class Keys {
 public:
  Keys(std::string_view prefix, Metadata& metadata) : prefix_(prefix), metadata_(metadata) {}

  void count(std::string_view key, std::int64_t value) {
    add(key, static_cast<std::uint64_t>(value), ElementType::U32);
  }
  void number(std::string_view key, double value) { add(key, value, ElementType::F32); }
  void text(std::string_view key, std::string_view value) {
    add(key, std::string(value), ElementType::String);
  }
  Status status() const { return status_; }

 private:
  void add(std::string_view key, formats::Value value, ElementType type) {
    if (!status_.ok()) return;
    status_ = metadata_.add(fmt::format("{}.{}", prefix_, key), std::move(value), type);
  }

  std::string_view prefix_;
  Metadata& metadata_;
  Status status_ = ok_status();
};

void add_scaling(const RopeParameters& rope, Keys& keys) {
  switch (rope.scaling) {
    case RopeScaling::None:
    case RopeScaling::Llama3:  // goes into the table of divisors
      return;
    case RopeScaling::Linear:
      keys.text("rope.scaling.type", "linear");
      keys.number("rope.scaling.factor", rope.factor);
      return;
    case RopeScaling::Yarn:
      keys.text("rope.scaling.type", "yarn");
      keys.number("rope.scaling.factor", rope.factor);
      keys.count("rope.scaling.original_context_length",
                 static_cast<std::int64_t>(rope.original_context));
      keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
      keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
      if (rope.attention_factor) {
        // Readers multiply what the file states with YaRN's own factor.
        const double own = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1.0;
        keys.number("rope.scaling.attn_factor", *rope.attention_factor / own);
      }
      return;
    case RopeScaling::LongRope:
      keys.count("rope.scaling.original_context_length",
                 static_cast<std::int64_t>(rope.original_context));
      return;
  }
}

void add_rope(const ModelConfig& config, Keys& keys) {
  if (config.ropes.empty()) return;
  const model::RopeConfig& rope = config.ropes.front();
  keys.count("rope.dimension_count", rope.recipe.rotary_dim);
  keys.number("rope.freq_base", rope.recipe.theta);
  add_scaling(rope.recipe, keys);
  if (rope.recipe.scaling == RopeScaling::LongRope)
    keys.number("rope.scaling.attn_factor", double{rope.magnitude});
  if (config.ropes.size() > 1) keys.number("rope.freq_base_swa", config.ropes[1].recipe.theta);
}

std::int32_t widest_window(const ModelConfig& config) {
  std::int32_t window = 0;
  for (const model::LayerAttention& layer : config.attention)
    window = std::max(window, layer.window);
  return window;
}

// n where every n-th layer, and no other, sees everything; 0 where the layers are alike or follow
// another rule.
std::int32_t window_pattern(const ModelConfig& config) {
  std::int32_t first = 0;
  while (first < config.num_layers && config.layer_attention(first).window > 0) ++first;
  const std::int32_t period = first + 1;
  if (first == 0 || first == config.num_layers) return 0;
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    const bool is_full = config.layer_attention(layer).window == 0;
    if (is_full != (layer % period == period - 1)) return 0;
  }
  return period;
}

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= 2e-6 * std::max({std::abs(a), std::abs(b), 1e-30});
}

bool same_rope(const model::RopeConfig& a, const model::RopeConfig& b) {
  return nearly_equal(double{a.magnitude}, double{b.magnitude}) &&
         std::equal(a.frequencies.begin(), a.frequencies.end(), b.frequencies.begin(),
                    b.frequencies.end(),
                    [](float x, float y) { return nearly_equal(double{x}, double{y}); });
}

using Member = std::variant<std::int32_t ModelConfig::*, float ModelConfig::*, bool ModelConfig::*>;
constexpr std::pair<std::string_view, Member> kMembers[] = {
    {"the vocabulary", &ModelConfig::vocab_size},
    {"the context", &ModelConfig::context_length},
    {"the width", &ModelConfig::hidden_dim},
    {"the number of layers", &ModelConfig::num_layers},
    {"the number of heads", &ModelConfig::num_heads},
    {"the number of key heads", &ModelConfig::num_kv_heads},
    {"the head dimension", &ModelConfig::head_dim},
    {"the inner width", &ModelConfig::ffn_dim},
    {"the norm's epsilon", &ModelConfig::norm_epsilon},
    {"the embedding's scale", &ModelConfig::embedding_scale},
    {"the cap of attention", &ModelConfig::attention_softcap},
    {"the cap of logits", &ModelConfig::logit_softcap},
    {"gated MLP", &ModelConfig::gated_mlp},
    {"learned positions", &ModelConfig::learned_positions},
    {"a tied output", &ModelConfig::tied_output},
    {"biases of Q, K and V", &ModelConfig::qkv_bias},
    {"a bias behind attention", &ModelConfig::attn_out_bias},
    {"biases of the MLP", &ModelConfig::mlp_bias},
    {"norms of query and key heads", &ModelConfig::qk_norm},
    {"norms behind attention and MLP", &ModelConfig::post_norms},
};

}  // namespace

float attention_scale(const ModelConfig& config) {
  return config.attention_scale > 0 ? config.attention_scale
                                    : 1.0F / std::sqrt(static_cast<float>(config.head_dim));
}

Status add_model_numbers(const ModelConfig& config, std::string_view prefix, Metadata& metadata) {
  Keys keys(prefix, metadata);
  keys.count("context_length", config.context_length);
  keys.count("embedding_length", config.hidden_dim);
  keys.count("block_count", config.num_layers);
  keys.count("feed_forward_length", config.ffn_dim);
  keys.count("attention.head_count", config.num_heads);
  keys.count("attention.head_count_kv", config.num_kv_heads);
  keys.number(config.norm == model::NormKind::LayerNorm ? "attention.layer_norm_epsilon"
                                                        : "attention.layer_norm_rms_epsilon",
              double{config.norm_epsilon});
  keys.count("vocab_size", config.vocab_size);
  if (!config.learned_positions) {
    keys.count("attention.key_length", config.head_dim);
    keys.count("attention.value_length", config.head_dim);
  }
  add_rope(config, keys);
  if (const std::int32_t window = widest_window(config); window > 0)
    keys.count("attention.sliding_window", window);
  if (const std::int32_t pattern = window_pattern(config); pattern > 0)
    keys.count("attention.sliding_window_pattern", pattern);
  // Where readers take a cap for granted, a model without one says so.
  const model::FamilyDefaults& defaults = model::defaults_of(config.architecture);
  if (config.attention_softcap > 0 || defaults.attention_softcap.absent > 0)
    keys.number("attn_logit_softcapping", double{config.attention_softcap});
  if (config.logit_softcap > 0 || defaults.logit_softcap.absent > 0)
    keys.number("final_logit_softcapping", double{config.logit_softcap});
  return keys.status();
}

std::string find_difference(const ModelConfig& before, const ModelConfig& after) {
  const auto differs = [](std::string_view what, auto a, auto b) {
    return fmt::format("{} is {} before and {} after", what, a, b);
  };
  if (before.norm != after.norm)
    return differs("the kind of norm", model::name(before.norm), model::name(after.norm));
  if (before.activation != after.activation) {
    return differs("the activation", model::name(before.activation), model::name(after.activation));
  }
  for (const auto& [what, member] : kMembers) {
    const std::string difference = std::visit(
        [&, what = what](auto field) -> std::string {
          const auto a = before.*field, b = after.*field;
          if constexpr (std::is_same_v<decltype(before.*field), const bool&>) {
            return a == b ? "" : differs(what, a ? "yes" : "no", b ? "yes" : "no");
          } else {
            return nearly_equal(a, b) ? "" : differs(what, a, b);
          }
        },
        member);
    if (!difference.empty()) return difference;
  }
  if (!nearly_equal(attention_scale(before), attention_scale(after)))
    return differs("the scale of attention", attention_scale(before), attention_scale(after));
  if (before.ropes.size() != after.ropes.size())
    return differs("the number of rotations", before.ropes.size(), after.ropes.size());
  for (std::size_t i = 0; i < before.ropes.size(); ++i) {
    if (!same_rope(before.ropes[i], after.ropes[i]))
      return "the rotary frequencies are not the same";
  }
  for (std::int32_t layer = 0; layer < before.num_layers; ++layer) {
    const model::LayerAttention a = before.layer_attention(layer), b = after.layer_attention(layer);
    if (a.window != b.window)
      return differs(fmt::format("the window of layer {}", layer), a.window, b.window);
    if (a.rope != b.rope)
      return differs(fmt::format("the rotation of layer {}", layer), a.rope, b.rope);
  }
  return {};
}

}  // namespace llorch::tools
