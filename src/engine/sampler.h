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
  float logprob = 0;                  // with top_logprobs only
  std::span<const TokenLogprob> top;  // valid until the next call
};

// The result depends on the input alone. Buffers are kept: after the first calls nothing is
// allocated.
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
    double weight = 0;
  };
  static bool ranks_before(const Candidate& left, const Candidate& right);

  Status scan_raw(std::span<const float> logits, std::int32_t position);
  double read_logprobs(std::span<const float> logits, std::int32_t num_top);
  std::span<const float> modify(const SampleInput& input);
  TokenId greedy(std::span<const float> logits) const;
  TokenId draw(std::span<const float> logits, const SampleInput& input);
  void select_top_k(std::span<const float> logits, std::size_t count);
  void select_top_p(std::span<const float> logits, float top_p);
  void collect(std::span<const float> logits, float least);
  void keep_top_p(float top_p);

  std::size_t vocab_size_;
  LogitScan scan_;
  SoftmaxWeights softmax_;
  std::vector<float> modified_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> at_border_;
  std::vector<double> mass_;  // by size of weight
  std::vector<TokenLogprob> top_;
};

}  // namespace llorch::engine
