#include "model/architectures/gpt2.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::int32_t kVocabSize = 50257;

constexpr std::array kPresets = {
    Gpt2Preset{"gpt2", 768, 12, 12},
    Gpt2Preset{"gpt2-medium", 1024, 24, 16},
    Gpt2Preset{"gpt2-large", 1280, 36, 20},
    Gpt2Preset{"gpt2-xl", 1600, 48, 25},
};

Status read_hf_numbers(const Metadata& metadata, ModelConfig& config) {
  // Variants of attention that no published GPT-2 uses.
  if (Status allowed = refuse_flags(metadata, {kIsCausal,
                                               {"config.scale_attn_weights", true},
                                               {"config.scale_attn_by_inverse_layer_idx", false}});
      !allowed.ok())
    return allowed;
  for (const auto& [key, out] : {std::pair{"config.n_embd", &config.hidden_dim},
                                 std::pair{"config.n_layer", &config.num_layers},
                                 std::pair{"config.n_head", &config.num_heads},
                                 std::pair{"config.vocab_size", &config.vocab_size}}) {
    if (Status read = read_int(metadata, key, *out); !read.ok()) return read;
  }
  // The first published files say n_ctx.
  const bool old_name =
      !metadata.contains("config.n_positions") && metadata.contains("config.n_ctx");
  const FamilyDefaults& defaults = defaults_of("gpt2");
  constexpr KeyRule<std::int32_t> kInner = {"n_inner", 0, 0};  // 0: four times the width
  for (const Status& read :
       {old_name ? read_int(metadata, "config.n_ctx", config.context_length)
                 : read_key(metadata, defaults.context_length, config, config.context_length),
        read_key(metadata, kInner, config, config.ffn_dim),
        read_common_keys(metadata, defaults, config)}) {
    if (!read.ok()) return read;
  }
  return ok_status();
}

Status read_gguf_numbers(const WeightFile& file, ModelConfig& config) {
  const Metadata& metadata = file.metadata();
  for (const auto& [key, out] : {std::pair{"gpt2.embedding_length", &config.hidden_dim},
                                 std::pair{"gpt2.block_count", &config.num_layers},
                                 std::pair{"gpt2.attention.head_count", &config.num_heads},
                                 std::pair{"gpt2.feed_forward_length", &config.ffn_dim},
                                 std::pair{"gpt2.context_length", &config.context_length}}) {
    if (Status read = read_int(metadata, key, *out); !read.ok()) return read;
  }
  Result<double> epsilon = metadata.number("gpt2.attention.layer_norm_epsilon");
  if (!epsilon.ok()) return epsilon.error();
  config.norm_epsilon = static_cast<float>(epsilon.value());
  config.tied_output = file.find("output.weight") == nullptr;
  return read_table_rows(file, "token_embd.weight", config.vocab_size);
}

std::string_view hf_prefix(const WeightFile& file) {
  return file.find("transformer.wte.weight") != nullptr ? "transformer." : "";
}

// Weights without any config: the table's width and the number of layers must be a published
// preset.
Status read_preset_numbers(const WeightFile& file, ModelConfig& config) {
  const std::string_view prefix = hf_prefix(file);
  const std::int64_t width = file.find(fmt::format("{}wte.weight", prefix))->shape[1];
  std::int32_t layers = 0;
  while (file.find(fmt::format("{}h.{}.ln_1.weight", prefix, layers)) != nullptr) ++layers;
  for (const Gpt2Preset& preset : kPresets) {
    if (preset.hidden_dim != width || preset.num_layers != layers) continue;
    config = make_gpt2_config(preset);
    return ok_status();
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("width {} with {} layers is no published GPT-2; put its config.json "
                           "beside the weights",
                           width, layers)};
}

std::string preset_name(const ModelConfig& config) {
  for (const Gpt2Preset& preset : kPresets) {
    if (preset.hidden_dim == config.hidden_dim && preset.num_layers == config.num_layers &&
        preset.num_heads == config.num_heads && config.ffn_dim == 4 * preset.hidden_dim) {
      return std::string(preset.name);
    }
  }
  return {};
}

Result<ModelConfig> read_config(const WeightFile& file, const PlanOptions&) {
  ModelConfig config;
  config.architecture = "gpt2";
  Status read = ok_status();
  if (file.format() == FileFormat::Gguf) {
    read = read_gguf_numbers(file, config);
  } else if (file.metadata().contains("config.n_embd")) {
    read = read_hf_numbers(file.metadata(), config);
  } else {
    const bool bare = looks_like_gpt2(file) && !file.metadata().contains("config.model_type");
    read = bare ? read_preset_numbers(file, config)
                : Status(Error{ErrorCode::Corrupt, "config.json has no n_embd"});
  }
  if (!read.ok()) return read.error();
  if (config.num_heads < 1 || config.hidden_dim % config.num_heads != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("embedding length {} is not a multiple of the head count {}",
                             config.hidden_dim, config.num_heads)};
  }
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_dim / config.num_heads;
  if (config.ffn_dim == 0 && config.hidden_dim < std::numeric_limits<std::int32_t>::max() / 4) {
    config.ffn_dim = 4 * config.hidden_dim;
  }
  config.norm = NormKind::LayerNorm;
  config.learned_positions = true;
  config.variant = preset_name(config);
  return config;
}

// Old checkpoints carry the causal mask of every layer as a buffer.
bool is_ignored(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

std::span<const Gpt2Preset> gpt2_presets() {
  return kPresets;
}

ModelConfig make_gpt2_config(const Gpt2Preset& preset) {
  ModelConfig config;
  config.architecture = "gpt2";
  config.variant = preset.name;
  config.vocab_size = kVocabSize;
  config.context_length = defaults_of("gpt2").context_length.absent;
  config.hidden_dim = preset.hidden_dim;
  config.num_layers = preset.num_layers;
  config.num_heads = preset.num_heads;
  config.num_kv_heads = preset.num_heads;
  config.head_dim = preset.hidden_dim / preset.num_heads;
  config.ffn_dim = 4 * preset.hidden_dim;
  config.norm_epsilon = defaults_of("gpt2").norm_epsilon.absent;
  config.learned_positions = true;
  config.tied_output = true;
  return config;
}

Architecture gpt2_architecture() {
  return {.name = "gpt2",
          .other_name = {},
          .gguf_name = "gpt2",
          .read_config = read_config,
          .tensors = gpt2_tensors(),
          .gguf_form = {.transposed = true},
          .is_ignored = is_ignored};
}

bool looks_like_gpt2(const WeightFile& file) {
  if (file.format() == FileFormat::Gguf) return false;
  const std::string_view prefix = hf_prefix(file);
  const formats::WeightTensor* tokens = file.find(fmt::format("{}wte.weight", prefix));
  const formats::WeightTensor* positions = file.find(fmt::format("{}wpe.weight", prefix));
  return tokens != nullptr && positions != nullptr && tokens->shape.rank() == 2 &&
         positions->shape.rank() == 2;
}

}  // namespace llorch::model
