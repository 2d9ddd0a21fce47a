// Tests only.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace llorch::engine {

inline std::vector<float> random_logits(std::size_t size, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

}  // namespace llorch::engine
