// Everything the engine knows about a model: numbers, and steps from a batch to what its rows want.
#pragma once

#include <cstdint>

#include <span>

#include "base/check.h"
#include "model/batch.h"

namespace llorch::model {

// The largest step a runner takes; all its buffers are sized from this once.
struct RunnerLimits {
  std::int32_t rows = 0;         // rows of one step; asked for 0: as many as the device likes best
  std::int32_t logit_rows = 64;  // rows that may want logits or their argmax; any may want hidden
  std::int32_t sequences = 16;   // sequences of one step
  std::int32_t num_blocks = 64;  // cache blocks in all
  std::int32_t block_tokens = 16;
  // Steps that may be submitted and not yet collected. Two: behind a step another one may follow
  // that has one row for each of its sequences, all of which were in the first, and wants nothing
  // but ids. Its tokens are those that the first finds (BatchRow::awaited), so what the host does
  // with them costs no time.
  std::int32_t steps_in_flight = 1;
  bool finds_argmax = false;  // rows may want their argmax alone
  bool draws = false;         // and a drawn id
  bool chooses = false;       // also by top-k, top-p and min-p
  // Logits of a step that choose() may change one by one; 0: it cannot be called.
  std::int32_t logit_changes = 0;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t hidden_dim() const = 0;
  virtual std::int32_t context_length() const = 0;
  virtual const RunnerLimits& limits() const = 0;

  // A step in two calls. Steps are computed in the order of submission: all rows of one, with their
  // keys and values in their blocks, before any of the next. The plan is read during the call only,
  // but for its abort flag. A plan that breaks the rules of batch.h or the limits is a bug of the
  // caller.
  virtual void submit(const BatchPlan& plan) = 0;
  // Of the newest step, which chooses later: one of `edits` for each row that wants an id, in row
  // order. Before the next one is submitted, which may await these ids, or it is collected; where
  // this is not called, the step has none. Its layers may still run meanwhile.
  virtual void choose(std::span<const RowEdits> /*edits*/) {
    CHECK(false, "a runner that does not edit logits was asked to");
  }
  // Waits for the oldest step that was submitted and not collected, and returns what its rows want.
  virtual StepOutput collect() = 0;

  // Both at once, for callers that have nothing else to do; no other step is in flight.
  StepOutput forward(const BatchPlan& plan) {
    submit(plan);
    return collect();
  }
};

}  // namespace llorch::model
