// Passes over a whole vocabulary: the maximum, exponentials and their sums. Four numbers at a time,
// in an order of addition that depends on the length alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llorch::engine {

// Both classes below summarise the vocabulary in groups of this many ids, so that whoever looks for
// a few of them passes over most groups unseen.
inline constexpr std::size_t kGroup = 64;

// The largest logit of each group and of all.
class LogitScan {
 public:
  explicit LogitScan(std::size_t vocab_size);

  // False when a logit is NaN or +infinity; nothing below is valid then.
  bool run(std::span<const float> logits);

  float max() const { return max_; }
  std::span<const float> group_max() const { return group_max_; }

 private:
  std::vector<float> group_max_;
  float max_ = 0;
};

// exp((logit - max) / temperature): the largest weighs 1, what is forbidden (-infinity) or
// negligible (below exp(-87)) weighs 0. Relative error below 1e-6.
class SoftmaxWeights {
 public:
  explicit SoftmaxWeights(std::size_t vocab_size);

  // temperature > 0; max is finite and the largest of the logits.
  void run(std::span<const float> logits, float max, float temperature);

  std::span<const float> weights() const { return std::span(weights_).first(vocab_size_); }
  std::span<const double> group_sums() const { return group_sums_; }
  double total() const { return total_; }
  // The id at which the running sum passes target, 0 <= target < total.
  std::size_t find(double target) const;

 private:
  std::size_t vocab_size_;
  std::vector<float> weights_;  // up to whole groups
  std::vector<double> group_sums_;
  double total_ = 0;
};

}  // namespace llorch::engine
