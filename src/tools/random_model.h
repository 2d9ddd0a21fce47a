// Models of well-known shapes with random weights, to measure with: as large and as fast as the
// real ones, and of no use otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tools/weight_types.h"

namespace llorch::tools {

struct ModelShape {
  std::string_view name;          // "qwen2.5-0.5b"
  std::string_view architecture;  // as GGUF names it
  std::uint32_t hidden, layers, heads, kv_heads, feed_forward, vocab, context;
  bool tied_output, has_qkv_bias;
};
std::span<const ModelShape> model_shapes();
const ModelShape* find_model_shape(std::string_view name);  // null when there is none

struct RandomModel {
  ModelShape shape;
  const WeightType* type = nullptr;
  std::uint32_t seed = 0;
  std::filesystem::path tokenizer = {};  // a folder to take it from; empty: none, no worker starts
};

// A GGUF file, its tensors typed as llorch-convert would type them. The same bytes for the same
// request.
Status write_random_model(const RandomModel& request, const std::filesystem::path& path);

}  // namespace llorch::tools
