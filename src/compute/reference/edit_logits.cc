#include "compute/reference/edit_logits.h"

#include <limits>

#include "base/check.h"

namespace llorch::compute {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float penalised(float x, std::int32_t count, const EditRule& rule) {
  x = x > 0 ? x / rule.repetition_penalty : x * rule.repetition_penalty;
  if (count == 0) return x;
  const float taken = static_cast<float>(count) * rule.frequency_penalty;
  return x - (taken + rule.presence_penalty);
}

}  // namespace

void edit_row(std::span<float> x, const EditRule& rule, std::span<const LogitChange> changes,
              std::span<const std::uint32_t> mask) {
  for (const LogitChange& change : changes) {
    CHECK(change.id >= 0 && static_cast<std::size_t>(change.id) < x.size());
    x[static_cast<std::size_t>(change.id)] += change.bias;
  }
  for (std::size_t id = 0; id < x.size() && !mask.empty(); ++id) {
    const bool may_follow = (mask[id / 32] >> (id % 32) & 1U) != 0;
    if (!may_follow && x[id] < kInfinity) x[id] = -kInfinity;
  }
  for (const LogitChange& change : changes) {
    float& value = x[static_cast<std::size_t>(change.id)];
    if (change.count >= 0) value = penalised(value, change.count, rule);
  }
}

}  // namespace llorch::compute
