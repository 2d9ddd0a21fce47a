#include "tools/weight_types.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace llorch::tools {
namespace {

using tensor::DType;

constexpr std::array kTypes = {
    WeightType{"f32", DType::F32, false, 0},     WeightType{"f16", DType::F16, false, 1},
    WeightType{"bf16", DType::BF16, false, 32},  WeightType{"q8_0", DType::Q8_0, false, 7},
    WeightType{"q4_0", DType::Q4_0, false, 2},   WeightType{"q4_1", DType::Q4_1, false, 3},
    WeightType{"q5_0", DType::Q5_0, false, 8},   WeightType{"q5_1", DType::Q5_1, false, 9},
    WeightType{"q4_k", DType::Q4_K, false, 14},  WeightType{"q5_k", DType::Q5_K, false, 16},
    WeightType{"q6_k", DType::Q6_K, false, 18},  WeightType{"q4_k_m", DType::Q4_K, true, 15},
    WeightType{"q5_k_m", DType::Q5_K, true, 17},
};

bool is_matrix(std::string_view name, const tensor::Shape& shape) {
  return shape.rank() >= 2 && name.ends_with(".weight") && !name.ends_with("_norm.weight") &&
         !name.starts_with("position_embd.") && !name.starts_with("token_types.") &&
         !name.starts_with("rope_");
}

// "blk.12.attn_v.weight" → 12; -1 where there is no layer.
std::int32_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  std::int32_t layer = -1;
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer;
}

// The layers that mixtures give more bits: the first and the last eighth, and every third between.
bool has_more_bits(std::int32_t layer, std::int32_t num_layers) {
  const std::int32_t eighth = num_layers / 8;
  return layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2;
}

DType wanted_type(const WeightType& wanted, std::string_view name, const ModelFacts& facts) {
  const bool is_plain = !tensor::is_block_type(wanted.dtype) || wanted.dtype == DType::Q8_0;
  if (is_plain) return wanted.dtype;
  const bool is_output =
      name == "output.weight" || (name == "token_embd.weight" && !facts.has_output);
  if (is_output) return DType::Q6_K;
  const bool is_value = name.ends_with(".attn_v.weight") || name.ends_with(".attn_qkv.weight");
  const bool is_down = name.ends_with(".ffn_down.weight");
  if (!is_value && !is_down) return wanted.dtype;
  const std::int32_t layer = layer_of(name);
  if (wanted.is_mixture) return has_more_bits(layer, facts.num_layers) ? DType::Q6_K : wanted.dtype;
  // What is known as Q4_K_S spends a little more on the first layers.
  if (wanted.dtype == DType::Q4_K && layer < (is_value ? 4 : facts.num_layers / 8))
    return DType::Q5_K;
  return wanted.dtype;
}

bool fits(DType dtype, std::int64_t columns) {
  return columns % tensor::info(dtype).block_elems == 0;
}

// Types of short blocks with about as many bits, and F16 where even these do not fit.
DType fallback_for(DType dtype, std::int64_t columns) {
  DType shorter = DType::F16;
  if (dtype == DType::Q4_K) shorter = DType::Q5_0;
  if (dtype == DType::Q5_K) shorter = DType::Q5_1;
  if (dtype == DType::Q6_K) shorter = DType::Q8_0;
  return fits(shorter, columns) ? shorter : DType::F16;
}

}  // namespace

std::span<const WeightType> weight_types() {
  return kTypes;
}

const WeightType* find_weight_type(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &WeightType::name);
  return found == kTypes.end() ? nullptr : &*found;
}

TypeChoice choose_type(const WeightType& wanted, std::string_view name, const tensor::Shape& shape,
                       const ModelFacts& facts) {
  if (!is_matrix(name, shape)) return {DType::F32, false};
  const DType dtype = wanted_type(wanted, name, facts);
  const std::int64_t columns = shape[shape.rank() - 1];
  if (fits(dtype, columns)) return {dtype, false};
  return {fallback_for(dtype, columns), true};
}

}  // namespace llorch::tools
