// Gemma 2 and the text models of Gemma 3: norms before and after attention and MLP, scaled
// embeddings, gated tanh GELU, sliding and full layers in turn. Gemma 2 caps scores and logits;
// Gemma 3 has norms on query and key heads and another rotation for its sliding layers.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/architectures/decoder.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::array<std::string_view, 1> kGemma2Aliases = {"gemma2"};
constexpr std::array<std::string_view, 2> kGemma3Aliases = {"gemma3", "gemma3_text"};
constexpr double kLocalTheta = 10000;  // of Gemma 3's sliding layers, where the file does not say

// Every second layer is full.
bool slides_gemma2(std::int32_t layer, const Metadata&) {
  return layer % 2 == 0;
}

// Every sixth layer is full, where the file states no other pattern.
bool slides_gemma3(std::int32_t layer, const Metadata& metadata) {
  std::int64_t pattern = 6;
  for (const char* key :
       {"config.sliding_window_pattern", "gemma3.attention.sliding_window_pattern"}) {
    const Result<std::int64_t> stated = metadata.integer_or(key, pattern);
    if (stated.ok() && stated.value() > 0) pattern = stated.value();
  }
  return layer % pattern != pattern - 1;
}

// What tells the two apart.
struct Generation {
  std::string_view name;
  bool (*slides)(std::int32_t layer, const Metadata& metadata);
  std::int32_t layers_27b;  // the layer count of the 27B model, whose GGUF leaves its scale out
};
constexpr Generation kGemma2 = {"gemma2", slides_gemma2, 46};
constexpr Generation kGemma3 = {"gemma3", slides_gemma3, 62};

Status read_hf_options(const Metadata& metadata, ModelConfig& config) {
  if (Status allowed = refuse_flags(metadata, {{"config.attention_bias", false},
                                               {"config.use_bidirectional_attention", false}});
      !allowed.ok())
    return allowed;
  float scalar = 0;
  for (const auto& [key, out] :
       {std::pair{"config.query_pre_attn_scalar", &scalar},
        std::pair{"config.attn_logit_softcapping", &config.attention_softcap},
        std::pair{"config.final_logit_softcapping", &config.logit_softcap}}) {
    if (Status read = read_optional_float(metadata, key, *out); !read.ok()) return read;
  }
  if (scalar > 0) config.attention_scale = 1 / std::sqrt(scalar);
  return ok_status();
}

Status read_gguf_options(const Metadata& metadata, const Generation& generation,
                         ModelConfig& config) {
  if (config.num_layers == generation.layers_27b) {
    config.attention_scale =
        1 / std::sqrt(static_cast<float>(config.hidden_dim) / static_cast<float>(config.num_heads));
  }
  for (const auto& [key, out] : {std::pair{"attention.scale", &config.attention_scale},
                                 std::pair{"attn_logit_softcapping", &config.attention_softcap},
                                 std::pair{"final_logit_softcapping", &config.logit_softcap}}) {
    const std::string full = fmt::format("{}.{}", generation.name, key);
    if (Status read = read_optional_float(metadata, full, *out); !read.ok()) return read;
  }
  return ok_status();
}

// Everything but rotation.
Result<ModelConfig> read_common(const WeightFile& file, const Generation& generation) {
  const Metadata& metadata = file.metadata();
  if (metadata.contains("config.text_config.hidden_size")) {
    return Error{ErrorCode::Unsupported,
                 "config.json describes a model of text and images (text_config); only the text "
                 "models of Gemma 3 are supported"};
  }
  ModelConfig config;
  config.architecture = generation.name;
  if (Status read = read_decoder_numbers(
          file, {.tied_output = true, .activation_key = "config.hidden_activation"}, config);
      !read.ok())
    return read.error();
  const bool gguf = file.format() == FileFormat::Gguf;
  if (gguf) config.activation = compute::Activation::GeluTanh;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_dim));
  const Status read =
      gguf ? read_gguf_options(metadata, generation, config) : read_hf_options(metadata, config);
  if (!read.ok()) return read.error();
  std::int32_t window = 0;
  const std::string window_key =
      gguf ? fmt::format("{}.attention.sliding_window", generation.name) : "config.sliding_window";
  if (Status found = read_int(metadata, window_key, window); !found.ok()) return found.error();
  Result<std::vector<bool>> sliding = read_sliding_layers(metadata, config, generation.slides);
  if (!sliding.ok()) return sliding.error();
  attend_alike(config, 0);
  for (std::size_t layer = 0; layer < config.attention.size(); ++layer)
    config.attention[layer].window = sliding.value()[layer] ? window : 0;
  return config;
}

Result<ModelConfig> read_gemma2(const WeightFile& file, const PlanOptions& options) {
  Result<ModelConfig> config = read_common(file, kGemma2);
  if (!config.ok()) return config.error();
  Result<RopeConfig> rope =
      read_rope(file, config.value(), {.context_wanted = options.context_length});
  if (!rope.ok()) return rope.error();
  config->ropes.push_back(rope.take());
  return config;
}

Result<ModelConfig> read_gemma3(const WeightFile& file, const PlanOptions& options) {
  Result<ModelConfig> config = read_common(file, kGemma3);
  if (!config.ok()) return config.error();
  config->qk_norm = true;
  Result<RopeConfig> global =
      read_rope(file, config.value(),
                {.layer_type = "full_attention", .context_wanted = options.context_length});
  if (!global.ok()) return global.error();
  Result<RopeConfig> local = read_rope(file, config.value(),
                                       {.layer_type = "sliding_attention",
                                        .local_theta = kLocalTheta,
                                        .context_wanted = options.context_length});
  if (!local.ok()) return local.error();
  config->ropes = {global.take(), local.take()};
  for (LayerAttention& layer : config->attention) layer.rope = layer.window > 0 ? 1 : 0;
  return config;
}

}  // namespace

Architecture gemma2_architecture() {
  return {.name = "gemma2",
          .aliases = kGemma2Aliases,
          .gguf_name = "gemma2",
          .read_config = read_gemma2,
          .tensors = post_norm_decoder_tensors(),
          .gguf_form = {.norms_plus_one = true},
          .is_ignored = is_rotary_tensor};
}

Architecture gemma3_architecture() {
  return {.name = "gemma3",
          .aliases = kGemma3Aliases,
          .gguf_name = "gemma3",
          .read_config = read_gemma3,
          .tensors = post_norm_decoder_tensors(),
          .gguf_form = {.norms_plus_one = true},
          .is_ignored = is_rotary_tensor};
}

}  // namespace llorch::model
