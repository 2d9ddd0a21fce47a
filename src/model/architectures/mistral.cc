// Mistral 7B: Llama with a sliding window (v0.1) or without (v0.2, v0.3). Its GGUF files call
// themselves llama.
#include <array>

#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::WeightFile;

constexpr std::array<std::string_view, 1> kAliases = {"mistral"};

Result<ModelConfig> read_config(const WeightFile& file, const PlanOptions& options) {
  ModelConfig config;
  config.architecture = "mistral";
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  if (Status allowed = refuse_flags(file.metadata(),
                                    {{"config.attention_bias", false}, {"config.mlp_bias", false}});
      !allowed.ok())
    return allowed.error();
  std::int32_t window = 0;
  const Status read =
      file.format() == formats::FileFormat::Gguf
          ? read_optional_int(file.metadata(), "mistral.attention.sliding_window", window)
          : read_key(file.metadata(), defaults_of("mistral").window, config, window);
  if (!read.ok()) return read.error();
  Result<RopeConfig> rope = read_rope(file, config, {.context_wanted = options.context_length});
  if (!rope.ok()) return rope.error();
  config.ropes.push_back(rope.take());
  attend_alike(config, window);
  return config;
}

}  // namespace

Architecture mistral_architecture() {
  return {.name = "mistral",
          .aliases = kAliases,
          .gguf_name = "llama",
          .read_config = read_config,
          .tensors = decoder_tensors(),
          .gguf_form = {.paired_rows = true},
          .is_ignored = is_rotary_tensor};
}

}  // namespace llorch::model
