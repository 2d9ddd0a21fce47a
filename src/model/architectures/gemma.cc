// Gemma 2 and the text models of Gemma 3: norms before and after attention and MLP, scaled
// embeddings, gated tanh GELU, sliding and full layers in turn. Gemma 2 caps scores and logits;
// Gemma 3 has norms on query and key heads and another rotation for its sliding layers.
#include <fmt/format.h>

#include <cmath>

#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

// What tells the two apart.
struct Generation {
  std::string_view name;
  std::int32_t period;      // every so-manieth layer is full, where the file does not say
  std::int32_t layers_27b;  // the layer count of the 27B model, whose GGUF leaves its scale out
  // Gemma 3 has the key, but neither transformers nor llama.cpp does anything with it.
  bool caps_scores;
};
constexpr Generation kGemma2 = {"gemma2", 2, 46, true};
constexpr Generation kGemma3 = {"gemma3", 6, 62, false};

Status read_hf_options(const Metadata& metadata, const Generation& generation,
                       ModelConfig& config) {
  if (Status allowed = refuse_flags(metadata, {{"config.use_bidirectional_attention", false}});
      !allowed.ok())
    return allowed;
  bool bias = false;
  if (Status read = read_optional_flag(metadata, "config.attention_bias", bias); !read.ok())
    return read;
  if (bias) return Error{ErrorCode::Unsupported, "config.attention_bias = true is not supported"};
  const FamilyDefaults& defaults = defaults_of(config.architecture);
  float scalar = 0;
  for (const Status& read :
       {read_key(metadata, defaults.query_scalar, config, scalar),
        read_key(metadata, defaults.attention_softcap, config, config.attention_softcap),
        read_key(metadata, defaults.logit_softcap, config, config.logit_softcap)}) {
    if (!read.ok()) return read;
  }
  if (!generation.caps_scores) config.attention_softcap = 0;
  if (!(scalar > 0)) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("config.query_pre_attn_scalar is {}, expected a number above 0", scalar)};
  }
  config.attention_scale = 1 / std::sqrt(scalar);
  return ok_status();
}

// Gemma 2's caps are llama.cpp's default too.
Status read_gguf_options(const Metadata& metadata, const Generation& generation,
                         ModelConfig& config) {
  if (config.num_layers == generation.layers_27b) {
    config.attention_scale =
        1 / std::sqrt(static_cast<float>(config.hidden_dim) / static_cast<float>(config.num_heads));
  }
  const FamilyDefaults& defaults = defaults_of(config.architecture);
  for (const auto& [name, out, absent] :
       {std::tuple{"attention.scale", &config.attention_scale, config.attention_scale},
        std::tuple{"attn_logit_softcapping", &config.attention_softcap,
                   defaults.attention_softcap.absent},
        std::tuple{"final_logit_softcapping", &config.logit_softcap,
                   defaults.logit_softcap.absent}}) {
    *out = absent;
    const std::string key = fmt::format("{}.{}", generation.name, name);
    if (Status read = read_optional_float(metadata, key, *out); !read.ok()) return read;
    if (absent > 0 && !metadata.contains(key) && out != &config.attention_scale)
      assume(config, key, absent);
  }
  if (!generation.caps_scores) config.attention_softcap = 0;
  return ok_status();
}

// The window's length. llama.cpp takes Gemma 2's for granted and runs a Gemma 3 without one as if
// nothing slid, which no published model does: refused.
Status read_window(const WeightFile& file, const Generation& generation, ModelConfig& config,
                   std::int32_t& window) {
  const FamilyDefaults& defaults = defaults_of(config.architecture);
  if (file.format() != FileFormat::Gguf) return read_hf_window(file.metadata(), config, window);
  const std::string key = fmt::format("{}.attention.sliding_window", generation.name);
  if (generation.name != kGemma2.name || file.metadata().contains(key))
    return read_int(file.metadata(), key, window);
  window = defaults.window.absent;
  assume(config, key, window);
  return ok_status();
}

// Which layers slide.
Result<std::vector<bool>> read_sliding(const WeightFile& file, const Generation& generation,
                                       const ModelConfig& config) {
  std::int32_t period = generation.period;
  const std::string key = file.format() == FileFormat::Gguf
                              ? fmt::format("{}.attention.sliding_window_pattern", generation.name)
                              : std::string("config.sliding_window_pattern");
  // Gemma2's config.json has no such key, whatever somebody wrote there.
  const bool stated = file.format() == FileFormat::Gguf || generation.name == kGemma3.name;
  if (Status read = stated ? read_optional_int(file.metadata(), key, period) : ok_status();
      !read.ok())
    return read.error();
  if (period < 1)
    return Error{ErrorCode::Corrupt, fmt::format("{} is {}, expected 1 or more", key, period)};
  return read_sliding_layers(file.metadata(), config,
                             [period](std::int32_t layer) { return layer % period != period - 1; });
}

// Everything but rotation. Layers that slide get rotation 1, the others 0.
Result<ModelConfig> read_common(const WeightFile& file, const Generation& generation) {
  const Metadata& metadata = file.metadata();
  if (metadata.contains("config.text_config.hidden_size")) {
    return Error{ErrorCode::Unsupported,
                 "config.json describes a model of text and images (text_config); only the text "
                 "models of Gemma 3 are supported"};
  }
  ModelConfig config;
  config.architecture = generation.name;
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  const bool gguf = file.format() == FileFormat::Gguf;
  if (gguf) config.activation = compute::Activation::GeluTanh;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_dim));
  const Status read = gguf ? read_gguf_options(metadata, generation, config)
                           : read_hf_options(metadata, generation, config);
  if (!read.ok()) return read.error();
  std::int32_t window = 0;
  if (Status found = read_window(file, generation, config, window); !found.ok())
    return found.error();
  Result<std::vector<bool>> sliding = read_sliding(file, generation, config);
  if (!sliding.ok()) return sliding.error();
  if (Status slid = slide_layers(*sliding, window, config); !slid.ok()) return slid.error();
  for (LayerAttention& layer : config.attention) layer.rope = layer.window > 0 ? 1 : 0;
  return config;
}

}  // namespace

Result<ModelConfig> read_gemma2(const WeightFile& file, const PlanOptions& options) {
  Result<ModelConfig> config = read_common(file, kGemma2);
  if (!config.ok()) return config.error();
  if (Status read = add_rope(file, {.context_wanted = options.context_length}, *config); !read.ok())
    return read.error();
  for (LayerAttention& layer : config->attention) layer.rope = 0;  // one rotation for all
  return config;
}

Result<ModelConfig> read_gemma3(const WeightFile& file, const PlanOptions& options) {
  Result<ModelConfig> config = read_common(file, kGemma3);
  if (!config.ok()) return config.error();
  config->qk_norm = true;
  const bool gguf = file.format() == FileFormat::Gguf;
  const FamilyDefaults& defaults = defaults_of("gemma3");
  RopeOptions wanted = {.layer_type = "full_attention", .context_wanted = options.context_length};
  if (!gguf) wanted.theta = defaults.rope_theta;  // llama.cpp has one default for all
  const RopeOptions local = {.layer_type = "sliding_attention",
                             .local_theta = defaults.local_rope_theta,
                             .context_wanted = options.context_length};
  for (const RopeOptions& rope : {wanted, local}) {
    if (Status read = add_rope(file, rope, *config); !read.ok()) return read.error();
  }
  return config;
}

}  // namespace llorch::model
