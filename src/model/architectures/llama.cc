// Llama 1, 2 and 3, and what was built like it (TinyLlama, SmolLM2, Mistral's GGUF files): RMS
// norms, grouped queries, rotary positions, gated SiLU MLP; biases where the file has them. Mistral
// 7B is the same with a sliding window (v0.1) or without (v0.2, v0.3), Ministral with one in some
// of its layers.
#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

Status read_hf_options(const Metadata& metadata, ModelConfig& config) {
  if (Status allowed = refuse_flags(metadata, {{"config.rope_interleaved", false}}); !allowed.ok())
    return allowed;
  if (Status read = read_optional_flag(metadata, "config.attention_bias", config.qkv_bias);
      !read.ok())
    return read;
  config.attn_out_bias = config.qkv_bias;
  return read_optional_flag(metadata, "config.mlp_bias", config.mlp_bias);
}

}  // namespace

Result<ModelConfig> read_llama(const WeightFile& file, const PlanOptions& options) {
  ModelConfig config;
  config.architecture = "llama";
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  std::int32_t window = 0;
  if (file.format() == FileFormat::Gguf) {
    // llama.cpp's converter drops Mistral 7B v0.1's window; other writers keep it.
    const Status read =
        read_optional_int(file.metadata(), "llama.attention.sliding_window", window);
    if (!read.ok()) return read.error();
    config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
    config.attn_out_bias = file.find("blk.0.attn_output.bias") != nullptr;
    config.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  } else if (Status read = read_hf_options(file.metadata(), config); !read.ok()) {
    return read.error();
  }
  return attend_alike(file, {.context_wanted = options.context_length}, window, std::move(config));
}

// A file that names its layers (Ministral) has windows in the sliding ones alone.
Result<ModelConfig> read_mistral(const WeightFile& file, const PlanOptions& options) {
  Result<ModelConfig> config =
      read_windowed(file, "mistral", {.context_wanted = options.context_length});
  if (!config.ok() || !file.metadata().contains("config.layer_types")) return config;
  const std::int32_t window = config->layer_attention(0).window;
  Result<std::vector<bool>> sliding =
      read_sliding_layers(file.metadata(), *config, [](std::int32_t) { return true; });
  if (!sliding.ok()) return sliding.error();
  if (Status slid = slide_layers(*sliding, window, *config); !slid.ok()) return slid.error();
  return config;
}

}  // namespace llorch::model
