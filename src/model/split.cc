#include "model/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llorch::model {

Result<std::vector<std::int32_t>> share_layers(std::int32_t num_layers,
                                               std::span<const std::int64_t> shares) {
  const auto devices = static_cast<std::int32_t>(shares.size());
  CHECK(devices > 0);
  if (devices > num_layers) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{} layers cannot be shared by {} devices; name fewer", num_layers, devices)};
  }
  double left = 0;
  for (const std::int64_t share : shares)
    left += static_cast<double>(std::max<std::int64_t>(share, 1));
  std::vector<std::int32_t> layers;
  std::int32_t layers_left = num_layers;
  for (std::int32_t i = 0; i < devices; ++i) {
    const auto share =
        static_cast<double>(std::max<std::int64_t>(shares[static_cast<std::size_t>(i)], 1));
    const auto fair = static_cast<std::int32_t>(std::lround(share / left * layers_left));
    layers.push_back(std::clamp(fair, 1, layers_left - (devices - 1 - i)));
    layers_left -= layers.back();
    left -= share;
  }
  return layers;
}

std::vector<ModelPlan> split_plan(const ModelPlan& whole, std::span<const std::int32_t> layers) {
  CHECK(!layers.empty() &&
        std::accumulate(layers.begin(), layers.end(), 0) == whole.config.num_layers);
  std::vector<ModelPlan> parts;
  std::int32_t first = 0;
  for (const std::int32_t count : layers) {
    const std::int32_t end = first + count;
    ModelPlan& part = parts.emplace_back();
    ModelConfig& config = part.config = whole.config;
    config.num_layers = count;
    config.embeds = first == 0;
    config.has_logits = end == whole.config.num_layers;
    if (!config.attention.empty()) {
      config.attention.assign(whole.config.attention.begin() + first,
                              whole.config.attention.begin() + end);
    }
    const bool has_output =
        std::any_of(whole.tensors.begin(), whole.tensors.end(),
                    [](const MappedTensor& mapped) { return mapped.spec.role == Role::Output; });
    for (MappedTensor mapped : whole.tensors) {
      const Role role = mapped.spec.role;
      const bool is_table = role == Role::TokenEmbedding || role == Role::PositionEmbedding;
      if (mapped.spec.layer >= 0) {
        if (mapped.spec.layer < first || mapped.spec.layer >= end) continue;
        mapped.spec.layer -= first;
      } else if (role == Role::TokenEmbedding && !config.embeds && config.has_logits &&
                 !has_output) {
        mapped.spec.role = Role::Output;
      } else if (!(is_table ? config.embeds : config.has_logits)) {
        continue;
      }
      part.tensors.push_back(std::move(mapped));
    }
    first = end;
  }
  return parts;
}

SplitRunner::SplitRunner(std::vector<std::unique_ptr<TransformerRunner>> parts)
    : parts_(std::move(parts)) {
  CHECK(!parts_.empty());
  limits_ = parts_.back()->limits();
  for (const auto& part : parts_) {
    CHECK(part->limits().num_blocks == limits_.num_blocks &&
          part->limits().block_tokens == limits_.block_tokens);
    limits_.rows = std::min(limits_.rows, part->limits().rows);
  }
  limits_.steps_in_flight = 1;
  limits_.logit_changes = 0;
}

void SplitRunner::submit(const BatchPlan& plan) {
  std::span<const float> stream;
  for (const auto& part : parts_) {
    output_ = part->pass(plan, stream);
    if (output_.aborted) return;
  }
}

}  // namespace llorch::model
