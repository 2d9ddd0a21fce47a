// Passes over a whole vocabulary: the maximum, and the weights of a softmax with their sums.
//
// A weight is exp((logit - max) / temperature) as an integer in units of 2^-40: cut off, never
// rounded up, so that what is lighter than 2^-40 weighs nothing. Sums of integers do not depend on
// their order: any number of threads, any width of vectors and any device come to the same total
// and so to the same draw. The float arithmetic before it is fixed operation by operation
// (softmax.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace llorch::engine {

using Weight = std::uint64_t;
inline constexpr int kWeightBits = 40;
inline constexpr Weight kHeaviest = Weight{1} << kWeightBits;  // what the largest logit weighs

// The scan summarises the vocabulary in groups of this many ids, so that whoever looks for a few of
// them passes over most groups unseen.
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

// How logits are weighed: relative to a largest one, at a temperature above 0.
class Weighing {
 public:
  Weighing(float max, float temperature);

  // The weights of some logits, none above the largest. Relative error below 1e-6, and at most one
  // unit more.
  void weigh(std::span<const float> logits, std::span<Weight> weights) const;

 private:
  friend class SoftmaxSums;

  float max_;
  float factor_;  // to powers of two
};

// Between which two numbers a sum of weights lies.
struct WeightBounds {
  Weight least = 0;
  Weight most = 0;
  // So much exactly, and ids that were weighed in haste (SoftmaxKernels::split).
  void add(Weight exact, float light, std::size_t num_light);
};

// The sum of all weights, and where a running sum passes a target.
class SoftmaxSums {
 public:
  explicit SoftmaxSums(std::size_t vocab_size);

  void run(std::span<const float> logits, const LogitScan& scan, const Weighing& weighing);
  // The same in haste: light groups are only bounded.
  WeightBounds bound(std::span<const float> logits, const LogitScan& scan,
                     const Weighing& weighing);

  Weight total() const { return total_; }
  // The first id up to and including which the weights sum to more than target, target < total.
  // The logits and the weighing are those of run().
  std::size_t find(std::span<const float> logits, const Weighing& weighing, Weight target) const;

  // The id that a draw falls on: what find() says of target(total()), which never decreases as the
  // total grows and stays below it. Most draws need no exact total: groups of light ids are only
  // bounded, and where the draw falls on the same id whatever they weigh, that is the answer.
  template <class Target>
  std::size_t draw(std::span<const float> logits, const LogitScan& scan, const Weighing& weighing,
                   const Target& target) {
    const WeightBounds total = bound(logits, scan, weighing);
    const std::optional<std::size_t> id =
        find_bounded(logits, scan, weighing, target(total.least), target(total.most));
    if (id) return *id;
    run(logits, scan, weighing);
    return find(logits, weighing, target(total_));
  }

 private:
  // Of so many ids each: few enough to be looked through, many enough to cost nothing.
  static constexpr std::size_t kChunk = 1024;

  std::optional<std::size_t> find_bounded(std::span<const float> logits, const LogitScan& scan,
                                          const Weighing& weighing, Weight least,
                                          Weight most) const;

  std::vector<Weight> chunk_sums_;
  std::vector<WeightBounds> bounds_;  // of all ids up to the end of each chunk
  Weight total_ = 0;
};

// What the passes are made of, for each width of vectors that a machine may have. All of them give
// the same bits.
struct SoftmaxKernels {
  const char* name;
  // The maxima of whole groups of kGroup logits, into `maxima`. False as LogitScan::run().
  bool (*scan)(std::span<const float> logits, float* maxima);
  // The sum of the weights of whole groups, whose maxima are given.
  Weight (*sum)(std::span<const float> logits, const float* maxima, float max, float factor);
  // The same of the groups that are not light. The others are weighed in haste and added to
  // `light`: between 1 and 1.062 times their weight before it is cut off.
  Weight (*split)(std::span<const float> logits, const float* maxima, float max, float factor,
                  float& light);
};
// Those that this machine can run, the best last.
std::span<const SoftmaxKernels> softmax_kernels();

}  // namespace llorch::engine
