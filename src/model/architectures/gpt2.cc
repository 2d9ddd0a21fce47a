#include "model/architectures/gpt2.h"

#include <fmt/format.h>

#include <array>
#include <limits>

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;
using tensor::Shape;

constexpr std::array<std::string_view, 1> kAliases = {"gpt2"};
constexpr std::int32_t kVocabSize = 50257;
constexpr std::int32_t kContextLength = 1024;
constexpr float kEpsilon = 1e-5F;

constexpr std::array kPresets = {
    Gpt2Preset{"gpt2", 768, 12, 12},
    Gpt2Preset{"gpt2-medium", 1024, 24, 16},
    Gpt2Preset{"gpt2-large", 1280, 36, 20},
    Gpt2Preset{"gpt2-xl", 1600, 48, 25},
};

// Reads an int32 that must be there.
Status read_int(const Metadata& metadata, std::string_view key, std::int32_t& out) {
  Result<std::int64_t> value = metadata.integer(key);
  if (!value.ok()) return value.error();
  if (value.value() < 0 || value.value() > std::numeric_limits<std::int32_t>::max()) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} is {}, expected 0..2^31-1", key, value.value())};
  }
  out = static_cast<std::int32_t>(value.value());
  return ok_status();
}

Result<compute::Activation> parse_activation(std::string_view name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return compute::Activation::GeluTanh;
  if (name == "gelu") return compute::Activation::GeluErf;
  if (name == "relu") return compute::Activation::Relu;
  if (name == "silu" || name == "swish") return compute::Activation::Silu;
  return Error{
      ErrorCode::Unsupported,
      fmt::format("activation_function '{}' is not supported; known: gelu_new, gelu, relu, silu",
                  name)};
}

// Attention variants of config.json that would change the numbers and that no published GPT-2 uses.
Status refuse_variants(const Metadata& metadata) {
  Result<bool> scaled = metadata.flag_or("config.scale_attn_weights", true);
  if (!scaled.ok()) return scaled.error();
  Result<bool> by_layer = metadata.flag_or("config.scale_attn_by_inverse_layer_idx", false);
  if (!by_layer.ok()) return by_layer.error();
  if (!scaled.value())
    return Error{ErrorCode::Unsupported, "scale_attn_weights = false is not supported"};
  if (by_layer.value()) {
    return Error{ErrorCode::Unsupported, "scale_attn_by_inverse_layer_idx = true is not supported"};
  }
  return ok_status();
}

Status read_hf_numbers(const Metadata& metadata, ModelConfig& config) {
  if (Status allowed = refuse_variants(metadata); !allowed.ok()) return allowed;
  const std::string_view context_key =
      metadata.contains("config.n_positions") ? "config.n_positions" : "config.n_ctx";
  for (const auto& [key, out] :
       {std::pair{std::string_view("config.n_embd"), &config.hidden_dim},
        std::pair{std::string_view("config.n_layer"), &config.num_layers},
        std::pair{std::string_view("config.n_head"), &config.num_heads},
        std::pair{std::string_view("config.vocab_size"), &config.vocab_size},
        std::pair{context_key, &config.context_length}}) {
    if (Status read = read_int(metadata, key, *out); !read.ok()) return read;
  }
  if (metadata.contains("config.n_inner")) {
    if (Status read = read_int(metadata, "config.n_inner", config.ffn_dim); !read.ok()) return read;
  }
  Result<double> epsilon = metadata.number_or("config.layer_norm_epsilon", double{kEpsilon});
  if (!epsilon.ok()) return epsilon.error();
  config.norm_epsilon = static_cast<float>(epsilon.value());
  if (metadata.contains("config.activation_function")) {
    Result<std::string_view> name = metadata.text("config.activation_function");
    if (!name.ok()) return name.error();
    Result<compute::Activation> activation = parse_activation(name.value());
    if (!activation.ok()) return activation.error();
    config.activation = activation.value();
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
  // The vocabulary may be padded: the rows of the table count, not the tokenizer's entries.
  const formats::WeightTensor* table = file.find("token_embd.weight");
  if (table == nullptr || table->shape.rank() != 2) {
    return Error{ErrorCode::Corrupt, "token_embd.weight is missing or not a matrix"};
  }
  if (table->shape[0] > std::numeric_limits<std::int32_t>::max()) {
    return Error{ErrorCode::Corrupt, fmt::format("token_embd.weight has {} rows", table->shape[0])};
  }
  config.vocab_size = static_cast<std::int32_t>(table->shape[0]);
  return ok_status();
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

Result<ModelConfig> read_config(const WeightFile& file) {
  ModelConfig config;
  Status read = ok_status();
  if (file.format() == FileFormat::Gguf) {
    read = read_gguf_numbers(file, config);
  } else if (file.metadata().contains("config.n_embd")) {
    read = read_hf_numbers(file.metadata(), config);
  } else {
    read = looks_like_gpt2(file) ? read_preset_numbers(file, config)
                                 : Status(Error{ErrorCode::Corrupt, "config.json has no n_embd"});
  }
  if (!read.ok()) return read.error();
  if (config.num_heads < 1 || config.hidden_dim % config.num_heads != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("embedding length {} is not a multiple of the head count {}",
                             config.hidden_dim, config.num_heads)};
  }
  config.architecture = "gpt2";
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

// The tensors of one layer: role, name in GGUF, name in Hugging Face files, dimensions (out, in) or
// (dim).
struct LayerRow {
  Role role;
  std::string_view gguf;
  std::string_view hf;
  std::int64_t out;
  std::int64_t in;  // 0: a vector
};

std::array<LayerRow, 12> layer_rows(const ModelConfig& config) {
  const std::int64_t d = config.hidden_dim;
  const std::int64_t f = config.ffn_dim;
  return {{
      {Role::AttnNormWeight, "attn_norm.weight", "ln_1.weight", d, 0},
      {Role::AttnNormBias, "attn_norm.bias", "ln_1.bias", d, 0},
      {Role::Qkv, "attn_qkv.weight", "attn.c_attn.weight", 3 * d, d},
      {Role::QkvBias, "attn_qkv.bias", "attn.c_attn.bias", 3 * d, 0},
      {Role::AttnOut, "attn_output.weight", "attn.c_proj.weight", d, d},
      {Role::AttnOutBias, "attn_output.bias", "attn.c_proj.bias", d, 0},
      {Role::FfnNormWeight, "ffn_norm.weight", "ln_2.weight", d, 0},
      {Role::FfnNormBias, "ffn_norm.bias", "ln_2.bias", d, 0},
      {Role::FfnIn, "ffn_up.weight", "mlp.c_fc.weight", f, d},
      {Role::FfnInBias, "ffn_up.bias", "mlp.c_fc.bias", f, 0},
      {Role::FfnOut, "ffn_down.weight", "mlp.c_proj.weight", d, f},
      {Role::FfnOutBias, "ffn_down.bias", "mlp.c_proj.bias", d, 0},
  }};
}

std::vector<TensorSpec> list_tensors(const ModelConfig& config, const WeightFile& file) {
  const bool gguf = file.format() == FileFormat::Gguf;
  const std::string_view prefix = gguf ? "" : hf_prefix(file);
  const std::int64_t d = config.hidden_dim;
  std::vector<TensorSpec> specs;
  const auto add_global = [&](Role role, std::string_view gguf_name, std::string hf_name,
                              Shape shape, bool required) {
    specs.push_back({.role = role,
                     .layer = -1,
                     .name = gguf ? std::string(gguf_name) : std::move(hf_name),
                     .shape = shape,
                     .transposed = false,
                     .required = required});
  };
  const auto hf = [prefix](std::string_view name) { return fmt::format("{}{}", prefix, name); };
  add_global(Role::TokenEmbedding, "token_embd.weight", hf("wte.weight"), {config.vocab_size, d},
             true);
  add_global(Role::PositionEmbedding, "position_embd.weight", hf("wpe.weight"),
             {config.context_length, d}, true);
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const LayerRow& row : layer_rows(config)) {
      const bool conv1d = !gguf && row.in > 0;  // Hugging Face keeps GPT-2's matrices (in, out)
      Shape shape = row.in == 0 ? Shape{row.out}
                    : conv1d    ? Shape{row.in, row.out}
                                : Shape{row.out, row.in};
      specs.push_back({.role = row.role,
                       .layer = layer,
                       .name = gguf ? fmt::format("blk.{}.{}", layer, row.gguf)
                                    : fmt::format("{}h.{}.{}", prefix, layer, row.hf),
                       .shape = shape,
                       .transposed = conv1d,
                       .required = true});
    }
  }
  add_global(Role::OutputNormWeight, "output_norm.weight", hf("ln_f.weight"), {d}, true);
  add_global(Role::OutputNormBias, "output_norm.bias", hf("ln_f.bias"), {d}, true);
  const Result<bool> tied = file.metadata().flag_or("config.tie_word_embeddings", true);
  add_global(Role::Output, "output.weight", "lm_head.weight", {config.vocab_size, d},
             tied.ok() && !tied.value());
  return specs;
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
  config.context_length = kContextLength;
  config.hidden_dim = preset.hidden_dim;
  config.num_layers = preset.num_layers;
  config.num_heads = preset.num_heads;
  config.num_kv_heads = preset.num_heads;
  config.head_dim = preset.hidden_dim / preset.num_heads;
  config.ffn_dim = 4 * preset.hidden_dim;
  config.norm_epsilon = kEpsilon;
  config.learned_positions = true;
  return config;
}

Architecture gpt2_architecture() {
  return {.name = "gpt2",
          .aliases = kAliases,
          .read_config = read_config,
          .list_tensors = list_tensors,
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
