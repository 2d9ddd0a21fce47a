// The twelve checkpoints: a ladder of comparisons from the first norm to generated ids. A Trace
// holds what one run of a model computed on the way; compare() sets it against a reference,
// recorded from another implementation or from the reference backend. Lower rungs come first: look
// at the first that fails.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "model/load.h"
#include "model/runner.h"

namespace llorch::model {

class RoundingSides;

struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// What one prompt went through. Names are the forward pass's (ForwardObserver) with the layer:
// "qkv.0".
struct Trace {
  std::map<std::string, HostTensor, std::less<>> tensors;
  std::vector<std::int32_t> ids;         // the prompt
  std::vector<std::int32_t> greedy_ids;  // the prompt and its greedy continuation
  std::int32_t argmax = -1;              // of the prompt's last position
};

// Eight steps of a float: scores of random weights are in the hundreds, where one step is most of
// a tolerance that is meant for numbers of about one.
inline constexpr double kOfItself = 1e-6;

struct Checkpoint {
  int number;
  std::string_view name;
  std::string_view tensor;  // what is compared; empty where it is not one tensor
  // The largest difference, 0 means exact. Numbers beyond tolerance / kOfItself may differ by so
  // much of themselves.
  double tolerance;
};
std::span<const Checkpoint> checkpoints();

struct CheckpointResult {
  Checkpoint checkpoint;
  bool passed = false;
  double max_error = 0;    // infinity when shapes differ or a number is not finite
  std::string difference;  // in words, empty when passed
};

// Runs the prompt as one batch with an observer, then the greedy continuation on fresh blocks.
// `sides`, on a reference that asks them (ReferenceForms::taken): what the run that it is compared
// with had where the two are rounded to different sides (rounding_sides.h).
Result<Trace> record_trace(const std::shared_ptr<const LoadedModel>& model,
                           compute::Backend& backend, std::span<const std::int32_t> ids,
                           std::int32_t greedy_tokens, RoundingSides* sides = nullptr);

// One result per checkpoint, in order.
std::vector<CheckpointResult> compare(const Trace& ours, const Trace& reference);

// The largest logit's index; the lowest one among equals.
std::int32_t argmax(std::span<const float> logits);

// The prompt followed by its greedy continuation of `count` tokens, prefilled in chunks of at most
// chunk_rows. The sequence lives in the given blocks, or in 0, 1, 2 … when none are given.
struct GreedyOptions {
  std::int32_t count = 0;
  std::int32_t chunk_rows = 0;  // 0: as many as the runner takes
  std::span<const std::int32_t> blocks = {};
};
std::vector<std::int32_t> generate_greedy(ModelRunner& runner, std::span<const std::int32_t> prompt,
                                          const GreedyOptions& options);

}  // namespace llorch::model
