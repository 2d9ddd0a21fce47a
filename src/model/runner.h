// Everything the engine knows about a model: numbers, and one function from a batch to logits.
#pragma once

#include <cstdint>
#include <span>

#include "model/batch.h"

namespace llorch::model {

// The largest step a runner takes; all its buffers are sized from this once.
struct RunnerLimits {
  std::int32_t rows = 64;        // rows of one step
  std::int32_t logit_rows = 64;  // rows of one step that may want logits; any may want hidden
  std::int32_t sequences = 16;   // sequences of one step
  std::int32_t num_blocks = 64;  // cache blocks in all
  std::int32_t block_tokens = 16;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t hidden_dim() const = 0;
  virtual std::int32_t context_length() const = 0;
  virtual const RunnerLimits& limits() const = 0;

  // Computes all rows, writes their keys and values into their blocks, and returns what the rows
  // want. A plan that breaks the rules of batch.h or the limits is a bug of the caller.
  virtual StepOutput forward(const BatchPlan& plan) = 0;
};

}  // namespace llorch::model
