// A model's numbers as GGUF metadata.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/metadata.h"
#include "model/config.h"

namespace llorch::tools {

// Adds "<prefix>.context_length" and all the others that readers of this architecture look for,
// except "attention.scale", which most readers know better.
Status add_model_numbers(const model::ModelConfig& config, std::string_view prefix,
                         formats::Metadata& metadata);

// What scores are multiplied with: 1/√head_dim where the config does not say.
float attention_scale(const model::ModelConfig& config);

// The first difference between two readings of a model, in words; empty when they mean the same.
// Names of families and the layout of rotated rows may differ.
std::string find_difference(const model::ModelConfig& before, const model::ModelConfig& after);

}  // namespace llorch::tools
