// What the next step computes: a function of integers, without a state and without effects.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llorch::engine {

// A sequence that has cache blocks, or waits with none but those it would find in the cache.
struct SequenceView {
  std::int32_t tokens_known = 0;  // prompt and output
  // In the cache or about to be; fewer than known, or it is busy.
  std::int32_t tokens_computed = 0;
  std::int32_t blocks_held = 0;  // waiting: found in the prefix cache, all full
  // Running: blocks that nobody else holds. Waiting: found blocks that nobody holds, which count
  // as free until then.
  std::int32_t blocks_alone = 0;
  // Any of its rows may want logits, not only the one of its last token.
  bool scores = false;
  bool is_busy = false;  // waits for what a step in flight finds out: no rows now
};

struct SchedulerInput {
  std::span<const SequenceView> running;  // oldest first; at most max_running
  std::span<const SequenceView> waiting;  // oldest first; all of them younger than those running
  std::int32_t blocks_total = 0;
  std::int32_t blocks_free = 0;
  std::int32_t block_tokens = 0;
  std::int32_t step_tokens = 0;  // at least max_running
  std::int32_t logit_rows = 0;   // of one step; at least max_running
  std::int32_t max_running = 0;
  bool may_preempt = true;  // not while steps are in flight: they write into the blocks
};

// Sequences give way from the youngest on and join from the oldest on, so two counts say who.
struct StepPlan {
  std::int32_t num_preempted = 0;  // the last of running
  std::int32_t num_admitted = 0;   // the first of waiting
  // Rows of each sequence: those that stay, then those that join. 0 for those that are busy, and
  // for all where somebody would have to give way and may not.
  std::vector<std::int32_t> rows;
};

// Every sequence of a step gets one row, so that none stands still; the rest of the budget is
// shared equally by those that have more to compute, and what one does not need goes to the others.
// Logits are kept for the last row of each; what is left of logit_rows bounds the rows of those
// that score.
//
// Preempts only when the running ones cannot all have their row. The oldest is never preempted, so
// it ends some day and everybody becomes the oldest: nobody starves. Admits only when the whole of
// what is known fits beside what those that run still need, with a block to grow into for each.
StepPlan plan_step(const SchedulerInput& input);

// Blocks that hold this many tokens.
constexpr std::int32_t blocks_for(std::int32_t tokens, std::int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace llorch::engine
