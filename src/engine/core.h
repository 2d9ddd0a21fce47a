// The engine without its thread: every sequence, the cache bookkeeping and the runner, one step at
// a time. What comes from other threads reaches it through StepHost, so tests drive it by hand.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kv/block_cache.h"
#include "model/runner.h"

namespace llorch::engine {

struct StepShare {
  GenerationId id = 0;
  std::int32_t rows = 0;
};

// Who runs the steps. All calls come from within EngineCore's functions.
class StepHost {
 public:
  virtual ~StepHost() = default;
  // A step with these sequences is about to run. Returns the flag that gives it up, or null.
  virtual const std::atomic<bool>* step_begins(std::span<const StepShare> shares) = 0;
  // The step is over; appends the ids whose results nobody wants any more.
  virtual void step_ended(bool aborted, std::vector<GenerationId>& cancelled) = 0;
  // The state of the engine (all of EngineStats but the rate), and the ids that ended since the
  // last report. Their sinks hear of it after this.
  virtual void report(const EngineStats& stats, std::span<const GenerationId> ended) = 0;
};

class EngineCore {
 public:
  EngineCore(std::unique_ptr<model::ModelRunner> runner, const EngineOptions& options);

  const EngineOptions& options() const { return options_; }  // within the runner's limits
  std::int32_t max_sequence_tokens() const;
  const model::ModelRunner& runner() const { return *runner_; }

  void add(std::unique_ptr<Sequence> sequence);  // behind all others
  void cancel(GenerationId id);                  // unknown ids are ignored
  void cancel_all();                             // the engine stops
  // The step that was under way came to nothing: all that were in it fail with this.
  void fail_step(StepHost& host, const Error& error);
  // Nothing to compute and nobody to tell.
  bool idle() const { return running_.empty() && waiting_.empty() && ended_.empty(); }

  // Ends what is past its deadline, plans, computes, samples, and tells the sinks.
  void step(StepHost& host);
  // Only tells the sinks of what has ended.
  void tell(StepHost& host);

 private:
  using Sequences = std::deque<std::unique_ptr<Sequence>>;

  void expire(Clock::time_point now);
  StepPlan plan();
  void carry_out(const StepPlan& plan, Clock::time_point now);
  void add_rows(Sequence& sequence, std::int32_t rows);
  void collect(const model::StepOutput& output);
  void use_logits(Sequence& sequence, std::int32_t position, std::span<const float> logits,
                  Clock::time_point now);
  void end(Sequence& sequence, FinishReason reason, std::optional<Error> why = {});
  void remove_ended();
  void refresh_stats();

  EngineOptions options_;
  std::unique_ptr<model::ModelRunner> runner_;
  kv::BlockCache cache_;
  Sampler sampler_;
  EngineStats stats_;

  Sequences running_;  // oldest first
  Sequences waiting_;  // oldest first, all younger than those running
  Sequences ended_;    // their sinks have not heard yet

  // Of the current step; kept to keep their memory.
  std::vector<SequenceView> running_views_, waiting_views_;
  std::vector<StepShare> shares_;
  model::BatchPlan batch_;
  std::vector<GenerationId> ids_;
};

}  // namespace llorch::engine
