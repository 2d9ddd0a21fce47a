// What the families after GPT-2 share: where their common numbers are in GGUF metadata and in
// config.json, how rotary positions are read, what is refused. A family is a few lines on top.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/weight_file.h"
#include "model/architecture.h"
#include "model/config.h"

namespace llorch::model {

// Reads an int32 that must be there.
Status read_int(const formats::Metadata& metadata, std::string_view key, std::int32_t& out);
// The same, left alone where absent; null is refused.
Status read_optional_int(const formats::Metadata& metadata, std::string_view key,
                         std::int32_t& out);
Status read_optional_float(const formats::Metadata& metadata, std::string_view key, float& out);
Status read_optional_flag(const formats::Metadata& metadata, std::string_view key, bool& out);

// Rows of an embedding table: the vocabulary may be padded beyond the tokenizer's entries.
Status read_table_rows(const formats::WeightFile& file, std::string_view tensor_name,
                       std::int32_t& out);

// "silu", "gelu_pytorch_tanh" …; `key` is for the error.
Result<compute::Activation> parse_activation(std::string_view key, std::string_view name);

// Settings of config.json that would change the numbers and that we do not do: each must be absent
// or have the value given.
Status refuse_flags(const formats::Metadata& metadata,
                    std::initializer_list<std::pair<std::string_view, bool>> allowed);

// Set to false, each token would see those behind it, too.
inline constexpr std::pair<std::string_view, bool> kIsCausal = {"config.is_causal", true};

// Fills in the numbers that every such model has: sizes, heads, norm, activation, tied output. GGUF
// keys begin with general.architecture; what config.json leaves out follows from defaults.h by
// config.architecture. The result has passed validate().
Status read_decoder_numbers(const formats::WeightFile& file, ModelConfig& config);

struct RopeOptions {
  std::string_view layer_type = {};  // of config.json's rope_parameters, where it has several
  double theta = 10000;              // where the file states none
  // Above 0: the rotation of sliding layers. Where the file has no parameters of their own for
  // them, they turn with this theta (or the file's own for them) and without scaling.
  double local_theta = 0;
  // Above 0: the context before it was stretched where config.json's own key does not state it,
  // whatever its scaling section says. 0: the section's, else the model's context.
  std::int32_t original_context = 0;
  bool may_be_partial = false;      // only the first part of each head is rotated
  bool yarn_is_longrope = false;    // what Phi-3's first files call "yarn" or "su"
  std::int32_t context_wanted = 0;  // PlanOptions::context_length
};
// The rotation that metadata describes, with its scaling. A theta that the file leaves out is noted
// in config.assumed.
//
// LongRoPE has two sets of factors, for sequences within the original context and for longer ones.
// Choosing by the length of the sequence would rotate cached keys and new queries differently once
// it grows past the border, so the choice is made once: the long ones if the model is to be run
// with more context than the original, else the short ones.
Result<RopeConfig> read_rope(const formats::WeightFile& file, ModelConfig& config,
                             const RopeOptions& options);

// The same as one of config.ropes.
Status add_rope(const formats::WeightFile& file, const RopeOptions& options, ModelConfig& config);

// Every layer with rotation 0 and this window; the second reads the rotation, too.
void attend_alike(ModelConfig& config, std::int32_t window);
Result<ModelConfig> attend_alike(const formats::WeightFile& file, const RopeOptions& options,
                                 std::int32_t window, ModelConfig config);

// A family without biases that has one window for all layers, or none.
Result<ModelConfig> read_windowed(const formats::WeightFile& file, std::string_view family,
                                  const RopeOptions& options);

// config.json's window by the family's rule: 0 where there is none, which a file says by null.
Status read_hf_window(const formats::Metadata& metadata, ModelConfig& config, std::int32_t& window);

// Gives this window to the layers that slide, rotation 0 to all. Refuses those that slide without a
// window, as transformers does.
Status slide_layers(const std::vector<bool>& sliding, std::int32_t window, ModelConfig& config);

// config.json's layer_types: which layers slide. Absent: `slides` decides.
Result<std::vector<bool>> read_sliding_layers(const formats::Metadata& metadata,
                                              const ModelConfig& config,
                                              const std::function<bool(std::int32_t)>& slides);

// Rotary tables that files carry and read_rope() has used, or that are computed anyway.
bool is_rotary_tensor(std::string_view name);

}  // namespace llorch::model
