// Models of well-known shapes with random weights, to measure with: sizes, tensors and numbers are
// those of the real ones, so they are as large and as fast, and of no use otherwise.
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
  std::string_view architecture;  // a family of model/architecture.h
  std::int32_t hidden, layers, heads, kv_heads, feed_forward, vocab, context;
  bool tied_output;
  float norm_epsilon = 1e-5F;
  double rope_theta = 10000;
  std::int32_t window = 0;  // of every layer; 0: none
};
std::span<const ModelShape> model_shapes();
const ModelShape* find_model_shape(std::string_view name);  // null when there is none
std::int64_t count_parameters(const ModelShape& shape);     // a tied output counted once

struct RandomModel {
  ModelShape shape;
  const WeightType* type = nullptr;
  std::uint32_t seed = 0;
  // A folder or a .gguf to take it from; empty: none, and no worker starts.
  std::filesystem::path tokenizer = {};
};

// A GGUF file, its tensors typed as llorch-convert would type them. The same bytes for the same
// request.
Status write_random_model(const RandomModel& request, const std::filesystem::path& path);

}  // namespace llorch::tools
