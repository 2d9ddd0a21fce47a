// Qwen2 and 2.5: Llama with biases on Q, K and V. Qwen3: without them, with norms on query and key
// heads.
#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::int32_t kFirstWindowLayer = 28;  // where config.json does not say

// config.json: a window for the layers that layer_types names, or from max_window_layers on. Null
// for the window: none.
Status read_windows(const Metadata& metadata, ModelConfig& config) {
  bool used = false;
  if (Status read = read_optional_flag(metadata, "config.use_sliding_window", used); !read.ok())
    return read;
  std::int32_t window = 0;
  std::int32_t first = kFirstWindowLayer;
  if (used) {
    for (const Status& read : {read_hf_window(metadata, config, window),
                               read_optional_int(metadata, "config.max_window_layers", first)}) {
      if (!read.ok()) return read;
    }
  }
  Result<std::vector<bool>> sliding = read_sliding_layers(
      metadata, config, [&](std::int32_t layer) { return window > 0 && layer >= first; });
  if (!sliding.ok()) return sliding.error();
  return slide_layers(*sliding, window, config);
}

Result<ModelConfig> finish(const WeightFile& file, const PlanOptions& options, ModelConfig config) {
  if (Status read = add_rope(file, {.context_wanted = options.context_length}, config); !read.ok())
    return read.error();
  if (Status read = read_windows(file.metadata(), config); !read.ok()) return read.error();
  return config;
}

}  // namespace

Result<ModelConfig> read_qwen2(const WeightFile& file, const PlanOptions& options) {
  ModelConfig config;
  config.architecture = "qwen2";
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  config.qkv_bias = true;
  return finish(file, options, std::move(config));
}

Result<ModelConfig> read_qwen3(const WeightFile& file, const PlanOptions& options) {
  ModelConfig config;
  config.architecture = "qwen3";
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  config.qk_norm = true;
  if (file.format() != FileFormat::Gguf) {
    const Status read =
        read_optional_flag(file.metadata(), "config.attention_bias", config.qkv_bias);
    if (!read.ok()) return read.error();
    config.attn_out_bias = config.qkv_bias;
  }
  return finish(file, options, std::move(config));
}

}  // namespace llorch::model
