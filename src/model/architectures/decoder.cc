#include "model/architectures/decoder.h"

#include <fmt/format.h>

#include <limits>

#include "base/utf8.h"
#include "model/architectures/defaults.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

Status as_int32(std::string_view key, std::int64_t value, std::int32_t& out) {
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max())
    return Error{ErrorCode::Corrupt, fmt::format("{} is {}, expected 0..2^31-1", key, value)};
  out = static_cast<std::int32_t>(value);
  return ok_status();
}

// Counts that must be absent or 0: experts take turns in the MLP, which we do not do.
Status refuse_experts(const Metadata& metadata, std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    Result<std::int64_t> count = metadata.integer_or(key, 0);
    if (!count.ok()) return count.error();
    if (count.value() == 0) continue;
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} = {}: mixtures of experts are not supported", key, count.value())};
  }
  return ok_status();
}

Status fill_head_dim(ModelConfig& config) {
  if (config.head_dim != 0) return ok_status();
  if (config.num_heads < 1 || config.hidden_dim % config.num_heads != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("embedding length {} is not a multiple of the head count {}, and the "
                             "file states no head dimension",
                             config.hidden_dim, config.num_heads)};
  }
  config.head_dim = config.hidden_dim / config.num_heads;
  return ok_status();
}

Status read_hf_numbers(const WeightFile& file, ModelConfig& config) {
  const Metadata& metadata = file.metadata();
  const FamilyDefaults& defaults = defaults_of(config.architecture);
  if (metadata.contains("config.quantization_config.quant_method")) {
    return Error{ErrorCode::Unsupported,
                 "quantization_config: weights packed by another tool are not supported; use the "
                 "unquantised weights or a GGUF file"};
  }
  constexpr std::string_view kExperts[] = {"config.num_local_experts", "config.num_experts"};
  if (Status allowed = refuse_experts(metadata, kExperts); !allowed.ok()) return allowed;
  if (Status allowed = refuse_flags(metadata, {kIsCausal}); !allowed.ok()) return allowed;
  for (const auto& [key, out] : {std::pair{"config.hidden_size", &config.hidden_dim},
                                 std::pair{"config.num_hidden_layers", &config.num_layers},
                                 std::pair{"config.num_attention_heads", &config.num_heads},
                                 std::pair{"config.intermediate_size", &config.ffn_dim},
                                 std::pair{"config.vocab_size", &config.vocab_size}}) {
    if (Status read = read_int(metadata, key, *out); !read.ok()) return read;
  }
  for (const Status& read :
       {read_key(metadata, defaults.context_length, config, config.context_length),
        read_key(metadata, defaults.num_kv_heads, config, config.num_kv_heads),
        read_key(metadata, defaults.head_dim, config, config.head_dim),
        read_common_keys(metadata, defaults, config)}) {
    if (!read.ok()) return read;
  }
  // A stated 0 is left for validate() to refuse.
  if (!metadata.contains("config.num_key_value_heads") && config.num_kv_heads == 0)
    config.num_kv_heads = config.num_heads;
  return ok_status();
}

Status read_gguf_numbers(const WeightFile& file, ModelConfig& config) {
  const Metadata& metadata = file.metadata();
  Result<std::string> prefix = declared_architecture(file);
  if (!prefix.ok()) return prefix.error();
  const auto key = [&prefix](std::string_view name) {
    return fmt::format("{}.{}", prefix.value(), name);
  };
  const std::string experts = key("expert_count");
  if (Status allowed = refuse_experts(metadata, std::array{std::string_view(experts)});
      !allowed.ok())
    return allowed;
  for (const auto& [name, out] : {std::pair{"embedding_length", &config.hidden_dim},
                                  std::pair{"block_count", &config.num_layers},
                                  std::pair{"attention.head_count", &config.num_heads},
                                  std::pair{"feed_forward_length", &config.ffn_dim},
                                  std::pair{"context_length", &config.context_length}}) {
    if (Status read = read_int(metadata, key(name), *out); !read.ok()) return read;
  }
  config.num_kv_heads = config.num_heads;
  config.activation = compute::Activation::Silu;
  config.tied_output = file.find("output.weight") == nullptr;
  std::int32_t value_dim = 0;
  for (const auto& [name, out] : {std::pair{"attention.head_count_kv", &config.num_kv_heads},
                                  std::pair{"attention.key_length", &config.head_dim},
                                  std::pair{"attention.value_length", &value_dim}}) {
    if (Status read = read_optional_int(metadata, key(name), *out); !read.ok()) return read;
  }
  if (Status filled = fill_head_dim(config); !filled.ok()) return filled;
  if (value_dim != 0 && value_dim != config.head_dim) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("keys of {} and values of {} numbers: different lengths are not "
                             "supported",
                             config.head_dim, value_dim)};
  }
  Result<double> epsilon = metadata.number(key("attention.layer_norm_rms_epsilon"));
  if (!epsilon.ok()) return epsilon.error();
  config.norm_epsilon = static_cast<float>(epsilon.value());
  return read_table_rows(file, "token_embd.weight", config.vocab_size);
}

}  // namespace

Status read_int(const Metadata& metadata, std::string_view key, std::int32_t& out) {
  Result<std::int64_t> value = metadata.integer(key);
  if (!value.ok()) return value.error();
  return as_int32(key, value.value(), out);
}

Status read_optional_int(const Metadata& metadata, std::string_view key, std::int32_t& out) {
  if (Status stated = refuse_null(metadata, key); !stated.ok()) return stated;
  return metadata.contains(key) ? read_int(metadata, key, out) : ok_status();
}

Status read_optional_float(const Metadata& metadata, std::string_view key, float& out) {
  if (Status stated = refuse_null(metadata, key); !stated.ok()) return stated;
  Result<double> value = metadata.number_or(key, double{out});
  if (!value.ok()) return value.error();
  out = static_cast<float>(value.value());
  return ok_status();
}

Status read_optional_flag(const Metadata& metadata, std::string_view key, bool& out) {
  if (Status stated = refuse_null(metadata, key); !stated.ok()) return stated;
  Result<bool> value = metadata.flag_or(key, out);
  if (!value.ok()) return value.error();
  out = value.value();
  return ok_status();
}

Status read_table_rows(const WeightFile& file, std::string_view tensor_name, std::int32_t& out) {
  const formats::WeightTensor* table = file.find(tensor_name);
  if (table == nullptr || table->shape.rank() != 2) {
    return Error{ErrorCode::Corrupt, fmt::format("{} is missing or not a matrix", tensor_name)};
  }
  return as_int32(fmt::format("the row count of {}", tensor_name), table->shape[0], out);
}

Result<compute::Activation> parse_activation(std::string_view key, std::string_view name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return compute::Activation::GeluTanh;
  if (name == "gelu") return compute::Activation::GeluErf;
  if (name == "relu") return compute::Activation::Relu;
  if (name == "silu" || name == "swish") return compute::Activation::Silu;
  return Error{ErrorCode::Unsupported,
               fmt::format("{} '{}' is not supported; known: gelu_new, gelu_pytorch_tanh, gelu, "
                           "relu, silu",
                           key, name)};
}

Status refuse_flags(const Metadata& metadata,
                    std::initializer_list<std::pair<std::string_view, bool>> allowed) {
  for (const auto& [key, value] : allowed) {
    Result<bool> found = metadata.flag_or(key, value);
    if (!found.ok()) return found.error();
    if (found.value() != value) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("{} = {} is not supported", key, found.value())};
    }
  }
  return ok_status();
}

Status read_decoder_numbers(const WeightFile& file, ModelConfig& config) {
  config.norm = NormKind::RmsNorm;
  config.gated_mlp = true;
  const Status read = file.format() == FileFormat::Gguf ? read_gguf_numbers(file, config)
                                                        : read_hf_numbers(file, config);
  if (!read.ok()) return read;
  Status valid = fill_head_dim(config);
  if (valid.ok()) valid = validate(config);
  return valid.ok() ? valid : Status(with_assumed(valid.error(), config));
}

void attend_alike(ModelConfig& config, std::int32_t window) {
  config.attention.assign(static_cast<std::size_t>(config.num_layers),
                          {.window = window, .rope = 0});
}

Result<ModelConfig> attend_alike(const WeightFile& file, const RopeOptions& options,
                                 std::int32_t window, ModelConfig config) {
  if (Status read = add_rope(file, options, config); !read.ok()) return read.error();
  attend_alike(config, window);
  return config;
}

Result<ModelConfig> read_windowed(const WeightFile& file, std::string_view family,
                                  const RopeOptions& options) {
  ModelConfig config;
  config.architecture = family;
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  if (Status allowed = refuse_flags(file.metadata(),
                                    {{"config.attention_bias", false}, {"config.mlp_bias", false}});
      !allowed.ok())
    return allowed.error();
  std::int32_t window = 0;
  const Status read =
      file.format() == formats::FileFormat::Gguf
          ? read_optional_int(file.metadata(), fmt::format("{}.attention.sliding_window", family),
                              window)
          : read_hf_window(file.metadata(), config, window);
  if (!read.ok()) return read.error();
  return attend_alike(file, options, window, std::move(config));
}

Status read_hf_window(const Metadata& metadata, ModelConfig& config, std::int32_t& window) {
  const KeyRule<std::int32_t>& rule = defaults_of(config.architecture).window;
  const std::string key = fmt::format("config.{}", rule.key);
  if (Status read = read_key(metadata, rule, config, window); !read.ok()) return read;
  if (window > 0 || !metadata.contains(key)) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("{} is 0, expected 1 or more, or null for no window", key)};
}

Status slide_layers(const std::vector<bool>& sliding, std::int32_t window, ModelConfig& config) {
  attend_alike(config, 0);
  for (std::size_t layer = 0; layer < config.attention.size(); ++layer) {
    if (!sliding[layer]) continue;
    if (window == 0) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("layer {} has sliding attention but no window: sliding_window is "
                               "null or 0, or use_sliding_window is not true",
                               layer)};
    }
    config.attention[layer].window = window;
  }
  return ok_status();
}

Result<std::vector<bool>> read_sliding_layers(const Metadata& metadata, const ModelConfig& config,
                                              const std::function<bool(std::int32_t)>& slides) {
  std::vector<bool> sliding;
  if (!metadata.contains("config.layer_types")) {
    for (std::int32_t layer = 0; layer < config.num_layers; ++layer)
      sliding.push_back(slides(layer));
    return sliding;
  }
  Result<std::vector<std::string_view>> types = metadata.texts("config.layer_types");
  if (!types.ok()) return types.error();
  if (types->size() != static_cast<std::size_t>(config.num_layers)) {
    return Error{ErrorCode::Corrupt, fmt::format("layer_types has {} entries, expected {}",
                                                 types->size(), config.num_layers)};
  }
  for (const std::string_view type : types.value()) {
    if (type != "full_attention" && type != "sliding_attention") {
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer_types: {} is not supported; known: full_attention, "
                               "sliding_attention",
                               base::quoted(type))};
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

}  // namespace llorch::model
