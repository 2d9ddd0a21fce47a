#include "engine/penalties.h"

#include <algorithm>

namespace llorch::engine {

bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

TokenCounts::TokenCounts(std::span<const TokenId> prompt, std::int32_t num_output) {
  std::vector<TokenId> ids(prompt.begin(), prompt.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  counts_.reserve(ids.size() + static_cast<std::size_t>(num_output));
  for (const TokenId id : ids) counts_.push_back({.id = id});
}

void TokenCounts::add(TokenId id) {
  const auto place = std::ranges::lower_bound(counts_, id, {}, &Count::id);
  if (place != counts_.end() && place->id == id) {
    ++place->in_output;
  } else {
    counts_.insert(place, {.id = id, .in_output = 1});
  }
}

void TokenCounts::penalise(const SamplingParams& params, std::span<float> logits) const {
  for (const Count& count : counts_) {
    float& logit = logits[static_cast<std::size_t>(count.id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output > 0) {
      logit -=
          static_cast<float>(count.in_output) * params.frequency_penalty + params.presence_penalty;
    }
  }
}

void TokenCounts::add_changes(std::vector<model::LogitChange>& changes) const {
  for (const Count& count : counts_) changes.push_back({.id = count.id, .count = count.in_output});
}

}  // namespace llorch::engine
