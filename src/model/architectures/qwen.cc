// Qwen2 and 2.5: Llama with biases on Q, K and V. Qwen3: without them, with norms on query and key
// heads.
#include <array>

#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::array<std::string_view, 1> kQwen2Aliases = {"qwen2"};
constexpr std::array<std::string_view, 1> kQwen3Aliases = {"qwen3"};

constexpr std::int32_t kFirstWindowLayer = 28;  // where config.json does not say

// config.json: a window for the layers that layer_types names, or from max_window_layers on. Null
// for the window: none.
Status read_windows(const Metadata& metadata, ModelConfig& config) {
  attend_alike(config, 0);
  bool used = false;
  if (Status read = read_optional_flag(metadata, "config.use_sliding_window", used); !read.ok())
    return read;
  if (!used) return ok_status();
  std::int32_t window = 0;
  std::int32_t first = kFirstWindowLayer;
  for (const Status& read :
       {read_key(metadata, defaults_of(config.architecture).window, config, window),
        read_optional_int(metadata, "config.max_window_layers", first)}) {
    if (!read.ok()) return read;
  }
  Result<std::vector<bool>> sliding =
      read_sliding_layers(metadata, config, [first](std::int32_t layer) { return layer >= first; });
  if (!sliding.ok()) return sliding.error();
  for (std::size_t layer = 0; layer < config.attention.size(); ++layer)
    config.attention[layer].window = sliding.value()[layer] ? window : 0;
  return ok_status();
}

Result<ModelConfig> finish(const WeightFile& file, const PlanOptions& options, ModelConfig config) {
  Result<RopeConfig> rope = read_rope(file, config, {.context_wanted = options.context_length});
  if (!rope.ok()) return rope.error();
  config.ropes.push_back(rope.take());
  if (Status read = read_windows(file.metadata(), config); !read.ok()) return read.error();
  return config;
}

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

}  // namespace

Architecture qwen2_architecture() {
  return {.name = "qwen2",
          .aliases = kQwen2Aliases,
          .gguf_name = "qwen2",
          .read_config = read_qwen2,
          .tensors = decoder_tensors(),
          .gguf_form = {},
          .is_ignored = is_rotary_tensor};
}

Architecture qwen3_architecture() {
  return {.name = "qwen3",
          .aliases = kQwen3Aliases,
          .gguf_name = "qwen3",
          .read_config = read_qwen3,
          .tensors = decoder_tensors(),
          .gguf_form = {},
          .is_ignored = is_rotary_tensor};
}

}  // namespace llorch::model
