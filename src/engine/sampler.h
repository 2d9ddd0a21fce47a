// Logits → the next token. Everything that request.h promises of sampling, for one row at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/penalties.h"
#include "engine/request.h"
#include "engine/softmax.h"

namespace llorch::engine {

struct SampleInput {
  std::span<const float> logits;  // (vocab_size)
  const SamplingParams& params;
  std::int32_t position = 0;              // of the token to choose, in its sequence
  const TokenCounts* counts = nullptr;    // null: nothing to penalise
  TokenConstraint* constraint = nullptr;  // null: everything is allowed
};

struct SampledToken {
  TokenId id = 0;
  float logprob = 0;              // with top_logprobs only
  std::vector<TokenLogprob> top;  // most probable first
};

// The result depends on the input alone. Buffers are kept: after the first calls nothing but `top`
// is allocated. One thread.
class Sampler {
 public:
  explicit Sampler(std::int32_t vocab_size);

  // Internal when the model's logits are not numbers, or when nothing may be chosen.
  Result<SampledToken> sample(const SampleInput& input);
  // The log-probabilities of `id`, which is already known to stand at `position`, and of the
  // `num_top` most probable ids. Fails as sample().
  struct ScoreInput {
    std::span<const float> logits;  // (vocab_size)
    TokenId id = 0;
    std::int32_t position = 0;
    std::int32_t num_top = 0;
  };
  Result<SampledToken> score(const ScoreInput& input);

 private:
  struct Candidate {
    TokenId id = 0;
    float logit = 0;
    Weight weight = 0;
  };
  static bool ranks_before(const Candidate& left, const Candidate& right);

  Status scan_raw(std::span<const float> logits, std::int32_t position);
  double read_logprobs(std::span<const float> logits, std::int32_t num_top,
                       std::vector<TokenLogprob>& top);
  std::span<const float> modify(const SampleInput& input);
  TokenId greedy(std::span<const float> logits) const;
  TokenId draw(std::span<const float> logits, const SampleInput& input);
  void select_top_k(std::span<const float> logits, std::size_t count);
  void select_top_p(std::span<const float> logits, const Weighing& weighing, float top_p);
  bool keep_heaviest(const WeightBounds& wanted);
  void collect(std::span<const float> logits, const Weighing& weighing, Weight least);
  template <class Visit>
  void visit_groups(std::span<const float> logits, const Weighing& weighing, Weight least,
                    const Visit& visit);
  void weigh_candidates(const Weighing& weighing);
  void keep_top_p(float top_p);
  Weight candidate_total() const;

  std::size_t vocab_size_;
  LogitScan scan_;
  SoftmaxSums sums_;
  std::vector<float> modified_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> at_border_;
  std::vector<Weight> group_weights_;  // what the largest of each group weighs
  std::vector<Weight> mass_;           // by class of weight
};

}  // namespace llorch::engine
