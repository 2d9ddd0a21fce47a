#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace llorch::engine {
namespace {

class Planner {
 public:
  explicit Planner(const SchedulerInput& input) : input_(input), free_(input.blocks_free) {}

  StepPlan run() {
    if (!input_.may_preempt && blocks_for_a_row(input_.running) > free_) {
      plan_.rows.assign(input_.running.size(), 0);
      return std::move(plan_);
    }
    preempt();
    if (plan_.num_preempted == 0) admit();
    share_rows();
    fit_into_blocks();
    return std::move(plan_);
  }

 private:
  std::int32_t blocks_needed(const SequenceView& sequence, std::int32_t rows) const {
    return blocks_for(sequence.tokens_computed + rows, input_.block_tokens) - sequence.blocks_held;
  }
  // For its first row of the step. After an aborted step a sequence holds more than that needs.
  std::int32_t blocks_for_a_row(const SequenceView& sequence) const {
    return sequence.is_busy ? 0 : std::max(0, blocks_needed(sequence, 1));
  }
  std::int32_t blocks_for_a_row(std::span<const SequenceView> sequences) const {
    std::int32_t needed = 0;
    for (const SequenceView& sequence : sequences) needed += blocks_for_a_row(sequence);
    return needed;
  }

  void preempt() {
    std::size_t staying = input_.running.size();
    std::int32_t needed = blocks_for_a_row(input_.running);
    while (staying > 1 && needed > free_) {
      const SequenceView& youngest = input_.running[--staying];
      needed -= blocks_for_a_row(youngest);
      free_ += youngest.blocks_alone;
    }
    plan_.num_preempted = static_cast<std::int32_t>(input_.running.size() - staying);
    step_.assign(input_.running.begin(),
                 input_.running.begin() + static_cast<std::ptrdiff_t>(staying));
    // Blocks that only the preempted ones shared are counted by nobody above. For the last one
    // left the count is plain.
    if (staying == 1) free_ = input_.blocks_total - step_[0].blocks_held;
  }

  void admit() {
    std::int32_t promised = 0;
    for (const SequenceView& sequence : step_) {
      promised += std::max(0, blocks_needed(sequence, left(sequence)));
    }
    for (const SequenceView& next : input_.waiting) {
      const auto num_running = static_cast<std::int32_t>(step_.size());
      if (num_running == input_.max_running) return;
      const std::int32_t needed = blocks_needed(next, left(next));
      const std::int32_t room_to_grow = num_running;
      if (num_running > 0 && promised + needed + next.blocks_alone + room_to_grow > free_) return;
      free_ -= next.blocks_alone;
      promised += needed;
      step_.push_back(next);
      ++plan_.num_admitted;
    }
  }

  void share_rows() {
    std::int32_t count = 0;
    for (const SequenceView& sequence : step_) {
      plan_.rows.push_back(sequence.is_busy ? 0 : 1);
      count += plan_.rows.back();
    }
    CHECK(count <= input_.step_tokens, "a step has fewer rows than sequences");
    std::int32_t budget = input_.step_tokens - count;
    logit_budget_ = input_.logit_rows - count;
    while (budget > 0) {
      std::int32_t wanting = 0, scoring = 0;
      for (std::size_t i = 0; i < step_.size(); ++i) {
        if (!wants_more(i)) continue;
        ++wanting;
        scoring += step_[i].scores ? 1 : 0;
      }
      if (wanting == 0) return;
      const std::int32_t share = std::max(1, budget / wanting);
      const std::int32_t logit_share = std::max(1, logit_budget_ / std::max(1, scoring));
      for (std::size_t i = 0; i < step_.size() && budget > 0; ++i) {
        if (!wants_more(i)) continue;
        std::int32_t given = std::min({share, budget, left(step_[i]) - plan_.rows[i]});
        if (step_[i].scores) {
          given = std::min({given, logit_share, logit_budget_});
          logit_budget_ -= given;
        }
        plan_.rows[i] += given;
        budget -= given;
      }
    }
  }

  // The first row of each is certain; further ones are cut to the blocks that are left.
  void fit_into_blocks() {
    free_ -= blocks_for_a_row(step_);
    CHECK(free_ >= 0, "a sequence was admitted that can never fit");
    for (std::size_t i = 0; i < step_.size(); ++i) {
      const std::int32_t certain = blocks_for_a_row(step_[i]);
      const std::int32_t more = std::max(0, blocks_needed(step_[i], plan_.rows[i])) - certain;
      if (more > free_) {
        const std::int32_t blocks = step_[i].blocks_held + certain + free_;
        plan_.rows[i] = blocks * input_.block_tokens - step_[i].tokens_computed;
        free_ = 0;
      } else {
        free_ -= more;
      }
    }
  }

  static std::int32_t left(const SequenceView& sequence) {
    return sequence.tokens_known - sequence.tokens_computed;
  }
  bool wants_more(std::size_t i) const {
    return plan_.rows[i] < left(step_[i]) && (!step_[i].scores || logit_budget_ > 0);
  }

  const SchedulerInput& input_;
  std::int32_t free_;
  std::int32_t logit_budget_ = 0;
  std::vector<SequenceView> step_;
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(const SchedulerInput& input) {
  return Planner(input).run();
}

}  // namespace llorch::engine
