// Phi-3 mini and medium, Phi-3.5 and Phi-4 mini: Llama with Q, K, V in one matrix and gate, up in
// one; a sliding window; LongRoPE in the variants for long context; partly rotated heads in Phi-4
// mini.
#include <array>

#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::WeightFile;

constexpr std::array<std::string_view, 1> kAliases = {"phi3"};

Result<ModelConfig> read_config(const WeightFile& file, const PlanOptions& options) {
  ModelConfig config;
  config.architecture = "phi3";
  if (Status read = read_decoder_numbers(file, config); !read.ok()) return read.error();
  if (Status allowed = refuse_flags(file.metadata(),
                                    {{"config.attention_bias", false}, {"config.mlp_bias", false}});
      !allowed.ok())
    return allowed.error();
  const bool gguf = file.format() == FileFormat::Gguf;
  std::int32_t window = 0;
  const FamilyDefaults& defaults = defaults_of("phi3");
  const Status read =
      gguf ? read_optional_int(file.metadata(), "phi3.attention.sliding_window", window)
           : read_key(file.metadata(), defaults.window, config, window);
  if (!read.ok()) return read.error();
  Result<RopeConfig> rope = read_rope(file, config,
                                      {.original_context = gguf ? 0 : defaults.original_context,
                                       .may_be_partial = true,
                                       .yarn_is_longrope = true,
                                       .context_wanted = options.context_length});
  if (!rope.ok()) return rope.error();
  config.ropes.push_back(rope.take());
  attend_alike(config, window);
  return config;
}

}  // namespace

Architecture phi3_architecture() {
  return {.name = "phi3",
          .aliases = kAliases,
          .gguf_name = "phi3",
          .read_config = read_config,
          .tensors = fused_decoder_tensors(),
          .gguf_form = {},
          .is_ignored = is_rotary_tensor};
}

}  // namespace llorch::model
