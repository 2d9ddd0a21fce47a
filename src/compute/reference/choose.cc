#include "compute/reference/choose.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "base/check.h"

namespace llorch::compute {
namespace {

__extension__ using Wide = unsigned __int128;

struct Candidate {
  std::int32_t id = 0;
  float logit = 0;
  std::uint64_t weight = 0;
};

bool ranks_before(const Candidate& left, const Candidate& right) {
  return left.logit != right.logit ? left.logit > right.logit : left.id < right.id;
}
bool comes_before(const Candidate& left, const Candidate& right) {
  return left.id < right.id;
}

// By the highest bit of a weight and the four below it.
int weight_class(std::uint64_t weight) {
  const int below = static_cast<int>(std::bit_width(weight)) - 5;
  return below <= 0 ? static_cast<int>(weight) : (below << 4) + static_cast<int>(weight >> below);
}

std::uint64_t total_of(std::span<const Candidate> candidates) {
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// The fewest from the front that have this share of all, at least one.
std::size_t count_of_share(std::span<const Candidate> candidates, std::uint32_t share) {
  const auto wanted = static_cast<std::uint64_t>((Wide{total_of(candidates)} * share) >> 32);
  std::uint64_t passed = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    passed += candidates[i].weight;
    if (passed >= wanted) return i + 1;
  }
  return candidates.size();
}

// The k most probable, and of these the share.
void keep_top_k(std::vector<Candidate>& candidates, const ChoiceRule& rule) {
  std::erase_if(candidates, [](const Candidate& candidate) {
    return candidate.logit == -std::numeric_limits<float>::infinity();
  });
  std::sort(candidates.begin(), candidates.end(), ranks_before);
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(rule.top_k)));
  if (rule.has_top_p != 0) candidates.resize(count_of_share(candidates, rule.top_p));
}

// The share of all: classes of weight from the heaviest on, most probable first in each. In the
// result those above the last class are in the order of ids.
void keep_top_p(std::vector<Candidate>& candidates, const ChoiceRule& rule) {
  std::erase_if(candidates, [](const Candidate& candidate) { return candidate.weight == 0; });
  std::sort(
      candidates.begin(), candidates.end(), [](const Candidate& left, const Candidate& right) {
        const int left_class = weight_class(left.weight);
        const int right_class = weight_class(right.weight);
        return left_class != right_class ? left_class > right_class : ranks_before(left, right);
      });
  candidates.resize(count_of_share(candidates, rule.top_p));
  const int border = weight_class(candidates.back().weight);
  const auto above = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const Candidate& candidate) { return weight_class(candidate.weight) == border; });
  std::sort(candidates.begin(), above, comes_before);
}

}  // namespace

float draw_factor(float temperature) {
  return std::min(1.44269504F / temperature, 1e30F);
}

std::uint64_t draw_weight(float x, float max, float factor) {
  constexpr float kUnits = 0x1.0p40F;
  constexpr float kRound = 12582912.0F;  // adding it leaves the nearest integer in the low bits
  const float t = std::max((x - max) * factor, -100.0F);
  const float shifted = t + kRound;
  const float f = t - (shifted - kRound);
  float p = f * (kUnits * 1.33813021e-3F) + kUnits * 9.66636837e-3F;
  p = p * f + kUnits * 5.55038117e-2F;
  p = p * f + kUnits * 2.40223497e-1F;
  p = p * f + kUnits * 6.93147182e-1F;
  p = p * f + kUnits;
  return static_cast<std::uint64_t>(std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23)));
}

std::int32_t draw_token(std::span<const float> x, float max, float temperature,
                        std::uint64_t draw) {
  const float factor = draw_factor(temperature);
  std::uint64_t total = 0;
  for (const float logit : x) total += draw_weight(logit, max, factor);
  __extension__ using Wide = unsigned __int128;
  const auto target = static_cast<std::uint64_t>((Wide{total} * draw) >> 53);
  std::uint64_t passed = 0;
  std::size_t id = 0;
  while ((passed += draw_weight(x[id], max, factor)) <= target) ++id;
  return static_cast<std::int32_t>(id);
}

std::int32_t choose_token(std::span<const float> x, const ChoiceRule& rule, std::int32_t best) {
  if (rule.temperature == 0) return best;
  const float factor = draw_factor(rule.temperature);
  std::vector<Candidate> candidates;
  for (std::size_t id = 0; id < x.size(); ++id) {
    candidates.push_back({static_cast<std::int32_t>(id), x[id],
                          draw_weight(x[id], x[static_cast<std::size_t>(best)], factor)});
  }
  if (rule.top_k > 0) {
    keep_top_k(candidates, rule);
  } else if (rule.has_top_p != 0) {
    keep_top_p(candidates, rule);
  }
  const std::uint64_t least = rule.least[0] | (std::uint64_t{rule.least[1]} << 32);
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.weight < least; });
  const std::uint64_t draw = rule.draw[0] | (std::uint64_t{rule.draw[1]} << 32);
  auto target = static_cast<std::uint64_t>((Wide{total_of(candidates)} * draw) >> 53);
  std::size_t chosen = 0;
  while (target >= candidates[chosen].weight) target -= candidates[chosen++].weight;
  return candidates[chosen].id;
}

}  // namespace llorch::compute
