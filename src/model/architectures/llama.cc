// Llama 1, 2 and 3, and what was built like it (TinyLlama, SmolLM2, Mistral's GGUF files): RMS
// norms, grouped queries, rotary positions, gated SiLU MLP; biases where the file has them.
#include <array>

#include "model/architectures/decoder.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::array<std::string_view, 1> kAliases = {"llama"};

Status read_hf_options(const Metadata& metadata, ModelConfig& config) {
  if (Status allowed = refuse_flags(metadata, {{"config.rope_interleaved", false}}); !allowed.ok())
    return allowed;
  if (Status read = read_optional_flag(metadata, "config.attention_bias", config.qkv_bias);
      !read.ok())
    return read;
  config.attn_out_bias = config.qkv_bias;
  return read_optional_flag(metadata, "config.mlp_bias", config.mlp_bias);
}

Result<ModelConfig> read_config(const WeightFile& file, const PlanOptions& options) {
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
  Result<RopeConfig> rope = read_rope(file, config, {.context_wanted = options.context_length});
  if (!rope.ok()) return rope.error();
  config.ropes.push_back(rope.take());
  attend_alike(config, window);
  return config;
}

}  // namespace

Architecture llama_architecture() {
  return {.name = "llama",
          .aliases = kAliases,
          .gguf_name = "llama",
          .read_config = read_config,
          .tensors = decoder_tensors(),
          .gguf_form = {.paired_rows = true},
          .is_ignored = is_rotary_tensor};
}

}  // namespace llorch::model
