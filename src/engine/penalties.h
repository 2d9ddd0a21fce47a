// Which ids a generation has seen and how often, and what that does to the next logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "model/batch.h"

namespace llorch::engine {

bool has_penalties(const SamplingParams& params);

class TokenCounts {
 public:
  // Room for every id of the prompt and for num_output more: add() does not allocate.
  TokenCounts(std::span<const TokenId> prompt, std::int32_t num_output);

  void add(TokenId id);  // of the output

  // Repetition (what is likely is divided, what is unlikely is multiplied) for every id seen;
  // frequency times count and presence are taken off every id of the output.
  void penalise(const SamplingParams& params, std::span<float> logits) const;
  // The same for who does it elsewhere: a change for each id seen, ascending ids.
  void add_changes(std::vector<model::LogitChange>& changes) const;
  std::size_t size() const { return counts_.size(); }

 private:
  struct Count {
    TokenId id = 0;
    std::int32_t in_output = 0;
  };
  std::vector<Count> counts_;  // ascending ids
};

}  // namespace llorch::engine
