// What each family takes for the keys that a file leaves out: one row per family, and how such keys
// are read. Values of config.json are those of Hugging Face transformers 5.12
// (tests/golden/config_defaults.json holds each of them); those of GGUF files are llama.cpp's.
// Sizes that no default could guess (widths, layers, heads, the vocabulary) are in no row: without
// them a file is refused by the key's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "formats/metadata.h"
#include "model/config.h"

namespace llorch::model {

// One key of config.json. `absent` is taken where the key is not there, `null` where it is null;
// without a `null` of its own, null is refused.
template <class T>
struct KeyRule {
  std::string_view key;
  T absent{};
  std::optional<T> null = std::nullopt;
};

// 0 stands for none, and for heads for what follows from the other sizes.
struct FamilyDefaults {
  std::string_view family;
  KeyRule<std::int32_t> context_length = {};
  KeyRule<std::int32_t> num_kv_heads = {};  // 0: one for each query head
  KeyRule<std::int32_t> head_dim = {};      // 0: hidden size / query heads
  KeyRule<float> norm_epsilon = {};
  KeyRule<std::string_view> activation = {};
  KeyRule<bool> tied_output = {};
  KeyRule<std::int32_t> window = {};
  KeyRule<float> query_scalar = {};  // scores are divided by its root; 0: by the root of head_dim
  KeyRule<float> attention_softcap = {};
  KeyRule<float> logit_softcap = {};
  double rope_theta = 10000;
  double local_rope_theta = 0;  // of the sliding layers, where they have a rotation of their own
  // LongRoPE's border where config.json does not state it; 0: the model's context.
  std::int32_t original_context = 0;
};

// A family of the table of architectures.
const FamilyDefaults& defaults_of(std::string_view family);

// Reads one key of config.json by its rule. A default that is a value (not 0) is noted in
// config.assumed.
Status read_key(const formats::Metadata& metadata, const KeyRule<std::int32_t>& rule,
                ModelConfig& config, std::int32_t& out);
Status read_key(const formats::Metadata& metadata, const KeyRule<float>& rule, ModelConfig& config,
                float& out);
Status read_key(const formats::Metadata& metadata, const KeyRule<bool>& rule, ModelConfig& config,
                bool& out);
// Those that every family has: the norm's epsilon, the tied output and the activation.
Status read_common_keys(const formats::Metadata& metadata, const FamilyDefaults& defaults,
                        ModelConfig& config);

// Notes in config.assumed that `key` was left out.
void assume(ModelConfig& config, std::string_view key, double value);

// For a key that must not be null; ok where it is not.
Status refuse_null(const formats::Metadata& metadata, std::string_view key);

// The same error, and which defaults were taken: a model whose numbers do not fit may have left out
// the one that would.
Error with_assumed(Error error, const ModelConfig& config);

}  // namespace llorch::model
