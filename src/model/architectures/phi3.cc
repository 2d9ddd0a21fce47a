// Phi-3 mini and medium, Phi-3.5 and Phi-4 mini: Llama with Q, K, V in one matrix and gate, up in
// one; a sliding window; LongRoPE in the variants for long context; partly rotated heads in Phi-4
// mini.
#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"

namespace llorch::model {

Result<ModelConfig> read_phi3(const formats::WeightFile& file, const PlanOptions& options) {
  const bool gguf = file.format() == formats::FileFormat::Gguf;
  return read_windowed(file, "phi3",
                       {.original_context = gguf ? 0 : defaults_of("phi3").original_context,
                        .may_be_partial = true,
                        .yarn_is_longrope = true,
                        .context_wanted = options.context_length});
}

}  // namespace llorch::model
