#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/random.h"

namespace llorch::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Weights lie in [0, 1]; those that agree in the exponent and four bits more share a class, and
// classes are ordered as weights are.
std::size_t weight_class(float weight) {
  return std::bit_cast<std::uint32_t>(weight) >> 19;
}
float least_of_class(std::size_t index) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(index) << 19);
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
      softmax_(vocab_size_),
      mass_(weight_class(1.0F) + 1) {
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
  const double log_total = read_logprobs(input.logits, input.num_top);
  const double raw = static_cast<double>(input.logits[static_cast<std::size_t>(input.id)]);
  return SampledToken{.id = input.id, .logprob = static_cast<float>(raw - log_total), .top = top_};
}

Result<SampledToken> Sampler::sample(const SampleInput& input) {
  if (const Status usable = scan_raw(input.logits, input.position); !usable.ok())
    return usable.error();
  SampledToken token;
  double log_total = 0;
  if (input.params.top_logprobs) {
    log_total = read_logprobs(input.logits, *input.params.top_logprobs);
    token.top = top_;
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

// Fills top_ from the scanned raw logits; returns the logarithm of the sum of their exponentials.
double Sampler::read_logprobs(std::span<const float> logits, std::int32_t num_top) {
  softmax_.run(logits, scan_.max(), 1.0F);
  const double log_total = static_cast<double>(scan_.max()) + std::log(softmax_.total());
  top_.clear();
  if (num_top > 0) {
    select_top_k(logits, static_cast<std::size_t>(num_top));
    for (const Candidate& candidate : candidates_) {
      const double logprob = static_cast<double>(candidate.logit) - log_total;
      top_.push_back({candidate.id, static_cast<float>(logprob)});
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
  const double uniform = uniform_draw(params.seed, input.position);
  const bool limits_count =
      params.top_k > 0 && params.top_k < static_cast<std::int64_t>(vocab_size_);
  if (limits_count) {
    select_top_k(logits, static_cast<std::size_t>(params.top_k));
    for (Candidate& candidate : candidates_) {
      candidate.weight = std::exp((static_cast<double>(candidate.logit) - scan_.max()) /
                                  static_cast<double>(params.temperature));
    }
    keep_top_p(params.top_p);
  } else {
    softmax_.run(logits, scan_.max(), params.temperature);
    if (params.top_p >= 1.0F && params.min_p <= 0.0F) {
      return static_cast<TokenId>(softmax_.find(uniform * softmax_.total()));
    }
    if (params.top_p < 1.0F) {
      select_top_p(logits, params.top_p);
    } else {
      collect(logits, params.min_p);
    }
  }
  // The weights are relative to the largest, so min-p needs no sum.
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.weight < static_cast<double>(params.min_p);
  });
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double passed = 0;
  for (const Candidate& candidate : candidates_) {
    passed += candidate.weight;
    if (passed > uniform * total) return candidate.id;
  }
  return candidates_.back().id;
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
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double passed = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size()) {
    passed += candidates_[kept++].weight;
    if (passed >= static_cast<double>(top_p) * total) break;
  }
  candidates_.resize(kept);
}

// The same over the whole vocabulary without sorting it: weights are summed by class, every token
// above the class in which the sum is reached is in, and only that class is sorted.
void Sampler::select_top_p(std::span<const float> logits, float top_p) {
  std::ranges::fill(mass_, 0.0);
  const std::span<const float> weights = softmax_.weights();
  for (const float weight : weights) mass_[weight_class(weight)] += static_cast<double>(weight);
  const double wanted = static_cast<double>(top_p) * softmax_.total();
  double passed = 0;
  std::size_t border = mass_.size() - 1;
  while (border > 0 && passed + mass_[border] < wanted) passed += mass_[border--];

  const float least = std::max(least_of_class(border), std::numeric_limits<float>::min());
  collect(logits, least);
  at_border_.clear();
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    if (weight_class(static_cast<float>(candidate.weight)) > border) return false;
    at_border_.push_back(candidate);
    return true;
  });
  std::ranges::sort(at_border_, ranks_before);
  for (const Candidate& candidate : at_border_) {
    candidates_.push_back(candidate);
    passed += candidate.weight;
    if (passed >= wanted) break;
  }
}

// The candidates that weigh this much or more, in the order of ids.
void Sampler::collect(std::span<const float> logits, float least) {
  candidates_.clear();
  const std::span<const float> weights = softmax_.weights();
  for (std::size_t group = 0; group < softmax_.group_sums().size(); ++group) {
    if (softmax_.group_sums()[group] < static_cast<double>(least)) continue;
    const std::size_t end = std::min((group + 1) * kGroup, vocab_size_);
    for (std::size_t id = group * kGroup; id < end; ++id) {
      if (weights[id] < least) continue;
      candidates_.push_back(
          {static_cast<TokenId>(id), logits[id], static_cast<double>(weights[id])});
    }
  }
}

}  // namespace llorch::engine
