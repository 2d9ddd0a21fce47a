#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/random.h"

namespace llorch::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Weights that agree in their highest bit and the four below share a class, and classes are ordered
// as weights are.
constexpr int kClassBits = 4;
std::size_t weight_class(Weight weight) {
  const int below = static_cast<int>(std::bit_width(weight)) - 1 - kClassBits;
  if (below <= 0) return static_cast<std::size_t>(weight);
  return (static_cast<std::size_t>(below) << kClassBits) +
         static_cast<std::size_t>(weight >> below);
}

__extension__ using Wide = unsigned __int128;

// The share of a total; cut off.
Weight share_of(Weight total, float share) {
  const auto parts = static_cast<std::uint64_t>(static_cast<double>(share) * 0x1.0p32);
  return static_cast<Weight>((Wide{total} * parts) >> 32);
}

// A number below total, by the draw for this position.
Weight draw_below(Weight total, std::uint64_t seed, std::int32_t position) {
  return static_cast<Weight>((Wide{total} * draw_bits(seed, position)) >> kDrawBits);
}

Error not_a_number(std::span<const float> logits, std::int32_t position, const char* when) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return !(x < kInfinity); });
  return {ErrorCode::Internal,
          fmt::format("the logits at position {} hold {} for token {}{}: expected finite numbers; "
                      "the weights of the model may be damaged",
                      position, std::isnan(*bad) ? "NaN" : "infinity", bad - logits.begin(), when)};
}

Error nothing_to_choose(std::int32_t position, const char* where) {
  return {ErrorCode::Internal, fmt::format("no token may follow at position {}: every logit {} is "
                                           "-infinity; expected at least one that is not",
                                           position, where)};
}

bool modifies(const SampleInput& input) {
  return !input.params.logit_bias.empty() || input.constraint != nullptr ||
         (input.counts != nullptr && has_penalties(input.params));
}

}  // namespace

Sampler::Sampler(std::int32_t vocab_size)
    : vocab_size_(static_cast<std::size_t>(vocab_size)),
      scan_(vocab_size_),
      sums_(vocab_size_),
      group_weights_(scan_.group_max().size()),
      mass_(weight_class(kHeaviest) + 1) {
  modified_.reserve(vocab_size_);
}

Status Sampler::scan_raw(std::span<const float> logits, std::int32_t position) {
  CHECK(logits.size() == vocab_size_);
  if (!scan_.run(logits)) return not_a_number(logits, position, "");
  if (scan_.max() == -kInfinity) return nothing_to_choose(position, "from the model");
  return ok_status();
}

Result<SampledToken> Sampler::score(const ScoreInput& input) {
  if (const Status usable = scan_raw(input.logits, input.position); !usable.ok())
    return usable.error();
  SampledToken token{.id = input.id};
  const double log_total = read_logprobs(input.logits, input.num_top, token.top);
  const double raw = static_cast<double>(input.logits[static_cast<std::size_t>(input.id)]);
  token.logprob = static_cast<float>(raw - log_total);
  return token;
}

Result<SampledToken> Sampler::sample(const SampleInput& input) {
  if (const Status usable = scan_raw(input.logits, input.position); !usable.ok())
    return usable.error();
  SampledToken token;
  double log_total = 0;
  if (input.params.top_logprobs) {
    log_total = read_logprobs(input.logits, *input.params.top_logprobs, token.top);
  }
  std::span<const float> logits = input.logits;
  if (modifies(input)) {
    logits = modify(input);
    if (!scan_.run(logits)) {
      return not_a_number(logits, input.position, " after logit bias and penalties");
    }
    if (scan_.max() == -kInfinity) return nothing_to_choose(input.position, "after the constraint");
  }
  token.id = input.params.temperature == 0 ? greedy(logits) : draw(logits, input);
  if (input.params.top_logprobs) {
    const float raw = input.logits[static_cast<std::size_t>(token.id)];
    token.logprob = static_cast<float>(static_cast<double>(raw) - log_total);
  }
  return token;
}

// Fills `top` from the scanned raw logits; returns the logarithm of the sum of their exponentials.
double Sampler::read_logprobs(std::span<const float> logits, std::int32_t num_top,
                              std::vector<TokenLogprob>& top) {
  sums_.run(logits, scan_, Weighing(scan_.max(), 1.0F));
  const double log_total = static_cast<double>(scan_.max()) +
                           std::log(std::ldexp(static_cast<double>(sums_.total()), -kWeightBits));
  if (num_top > 0) {
    select_top_k(logits, static_cast<std::size_t>(num_top));
    for (const Candidate& candidate : candidates_) {
      const double logprob = static_cast<double>(candidate.logit) - log_total;
      top.push_back({candidate.id, static_cast<float>(logprob)});
    }
  }
  return log_total;
}

std::span<const float> Sampler::modify(const SampleInput& input) {
  modified_.assign(input.logits.begin(), input.logits.end());
  for (const auto& [id, bias] : input.params.logit_bias) {
    modified_[static_cast<std::size_t>(id)] += bias;
  }
  if (input.constraint != nullptr) input.constraint->mask(modified_);
  if (input.counts != nullptr) input.counts->penalise(input.params, modified_);
  return modified_;
}

TokenId Sampler::greedy(std::span<const float> logits) const {
  const auto group = static_cast<std::size_t>(std::ranges::find(scan_.group_max(), scan_.max()) -
                                              scan_.group_max().begin());
  const std::span<const float> rest = logits.subspan(group * kGroup);
  return static_cast<TokenId>(
      static_cast<std::size_t>(std::ranges::find(rest, scan_.max()) - rest.begin()) +
      group * kGroup);
}

TokenId Sampler::draw(std::span<const float> logits, const SampleInput& input) {
  const SamplingParams& params = input.params;
  const Weighing weighing(scan_.max(), params.temperature);
  // Relative to the largest, so that min-p needs no sum.
  const auto least =
      static_cast<Weight>(std::ldexp(static_cast<double>(params.min_p), kWeightBits));
  if (params.top_k > 0 && params.top_k < static_cast<std::int64_t>(vocab_size_)) {
    select_top_k(logits, static_cast<std::size_t>(params.top_k));
    weigh_candidates(weighing);
    keep_top_p(params.top_p);
  } else if (params.top_p < 1.0F) {
    select_top_p(logits, weighing, params.top_p);
  } else if (least > 0) {
    collect(logits, weighing, least);
  } else {
    return static_cast<TokenId>(sums_.draw(logits, scan_, weighing, [&](Weight total) {
      return draw_below(total, params.seed, input.position);
    }));
  }
  std::erase_if(candidates_,
                [least](const Candidate& candidate) { return candidate.weight < least; });
  Weight target = draw_below(candidate_total(), params.seed, input.position);
  std::size_t chosen = 0;
  while (target >= candidates_[chosen].weight) target -= candidates_[chosen++].weight;
  return candidates_[chosen].id;
}

Weight Sampler::candidate_total() const {
  Weight total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  return total;
}

void Sampler::weigh_candidates(const Weighing& weighing) {
  std::array<float, kGroup> logits;
  std::array<Weight, kGroup> weights;
  for (std::size_t start = 0; start < candidates_.size(); start += kGroup) {
    const std::size_t count = std::min(kGroup, candidates_.size() - start);
    for (std::size_t i = 0; i < count; ++i) logits[i] = candidates_[start + i].logit;
    weighing.weigh(std::span(logits).first(count), std::span(weights).first(count));
    for (std::size_t i = 0; i < count; ++i) candidates_[start + i].weight = weights[i];
  }
}

bool Sampler::ranks_before(const Candidate& left, const Candidate& right) {
  return left.logit != right.logit ? left.logit > right.logit : left.id < right.id;
}

// The `count` most probable of the scanned logits, most probable first. Twice that many are
// collected before the worse half is dropped; the worst of the better half is then the bar.
void Sampler::select_top_k(std::span<const float> logits, std::size_t count) {
  candidates_.clear();
  const std::size_t room =
      std::min(vocab_size_, std::max<std::size_t>(2 * std::min(count, vocab_size_), 256));
  const auto cut = [&] {
    if (candidates_.size() <= count) return;
    const auto nth = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(candidates_.begin(), nth - 1, candidates_.end(), ranks_before);
    candidates_.erase(nth, candidates_.end());
  };
  float bar = -kInfinity;
  for (std::size_t group = 0; group < scan_.group_max().size(); ++group) {
    if (!(scan_.group_max()[group] > bar)) continue;
    const std::size_t end = std::min((group + 1) * kGroup, vocab_size_);
    for (std::size_t id = group * kGroup; id < end; ++id) {
      // Equal to the bar loses to it: ids ascend here.
      if (!(logits[id] > bar)) continue;
      candidates_.push_back({static_cast<TokenId>(id), logits[id]});
      if (candidates_.size() >= room && room > count) {
        cut();
        bar = candidates_.back().logit;
      }
    }
  }
  cut();
  std::ranges::sort(candidates_, ranks_before);
}

// Of candidates most probable first, the fewest that have top_p of their sum.
void Sampler::keep_top_p(float top_p) {
  if (top_p >= 1.0F) return;
  const Weight wanted = share_of(candidate_total(), top_p);
  Weight passed = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size()) {
    passed += candidates_[kept++].weight;
    if (passed >= wanted) break;
  }
  candidates_.resize(kept);
}

// The same over the whole vocabulary without sorting it. Light tokens are many and seldom count, so
// they are weighed exactly, and looked at, only where it depends on them.
void Sampler::select_top_p(std::span<const float> logits, const Weighing& weighing, float top_p) {
  constexpr Weight kLight = kHeaviest >> 20;
  const WeightBounds total = sums_.bound(logits, scan_, weighing);
  collect(logits, weighing, kLight);
  if (keep_heaviest({share_of(total.least, top_p), share_of(total.most, top_p)})) return;
  sums_.run(logits, scan_, weighing);
  const Weight wanted = share_of(sums_.total(), top_p);
  collect(logits, weighing, kLight);
  if (keep_heaviest({wanted, wanted})) return;
  collect(logits, weighing, 1);
  keep_heaviest({wanted, wanted});
}

// The fewest and most probable candidates that weigh as much as is wanted. False where they differ
// between the two bounds of that, or where all together do not have it. Weights are summed by
// class, every candidate above the class in which the sum is reached is in, and only that class is
// sorted.
bool Sampler::keep_heaviest(const WeightBounds& wanted) {
  std::ranges::fill(mass_, Weight{0});
  for (const Candidate& candidate : candidates_)
    mass_[weight_class(candidate.weight)] += candidate.weight;
  Weight passed = 0;
  std::size_t border = mass_.size() - 1;
  while (border > 1 && passed + mass_[border] < wanted.most) passed += mass_[border--];
  at_border_.clear();
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    const std::size_t found = weight_class(candidate.weight);
    if (found == border) at_border_.push_back(candidate);
    return found <= border;
  });
  std::ranges::sort(at_border_, ranks_before);
  for (const Candidate& candidate : at_border_) {
    const bool is_certain = passed < wanted.least || candidates_.empty();
    candidates_.push_back(candidate);
    passed += candidate.weight;
    if (passed >= wanted.most) return is_certain;
  }
  return false;
}

// The candidates that weigh this much or more, in the order of ids; least > 0.
void Sampler::collect(std::span<const float> logits, const Weighing& weighing, Weight least) {
  candidates_.clear();
  visit_groups(logits, weighing, least, [&](std::size_t id, Weight weight) {
    candidates_.push_back({static_cast<TokenId>(id), logits[id], weight});
  });
}

// visit(id, weight) for all that weigh this much or more, in the order of ids.
template <class Visit>
void Sampler::visit_groups(std::span<const float> logits, const Weighing& weighing, Weight least,
                           const Visit& visit) {
  weighing.weigh(scan_.group_max(), group_weights_);
  std::array<Weight, kGroup> weights;
  for (std::size_t group = 0; group < group_weights_.size(); ++group) {
    // A smaller logit may weigh more by a rounding.
    if (group_weights_[group] + (group_weights_[group] >> 16) + 1 < least) continue;
    const std::size_t start = group * kGroup;
    const std::size_t count = std::min(kGroup, vocab_size_ - start);
    weighing.weigh(logits.subspan(start, count), std::span(weights).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (weights[i] >= least) visit(start + i, weights[i]);
    }
  }
}

}  // namespace llorch::engine
