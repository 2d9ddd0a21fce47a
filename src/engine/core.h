// The engine without its thread: every sequence, the cache bookkeeping and the runner, one step at
// a time. What comes from other threads reaches it through StepHost, so tests drive it by hand.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sampling_team.h"
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
  // A step with these sequences is about to run, maybe while another one does. Returns the flag
  // that gives up all that run, or null; once set it stays so until none does.
  virtual const std::atomic<bool>* step_begins(std::span<const StepShare> shares) = 0;
  // The step with these is over; appends the ids whose results nobody wants any more.
  virtual void step_ended(std::span<const StepShare> shares, bool aborted,
                          std::vector<GenerationId>& cancelled) = 0;
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
  // The step that was under way came to nothing: all that run fail with this.
  void fail_step(StepHost& host, const Error& error);
  // Nothing to compute and nobody to tell.
  bool idle() const {
    return running_.empty() && waiting_.empty() && ended_.empty() && num_flights_ == 0;
  }

  // Ends what is past its deadline, submits the steps that can be planned now, collects the oldest,
  // samples, and tells the sinks. Where the runner takes a second step in flight and everybody in
  // the first can go on with the id that it finds, the second one is submitted before those ids are
  // known here, and computes while this tells the sinks.
  void step(StepHost& host);
  // Only tells the sinks of what has ended.
  void tell(StepHost& host);

 private:
  using Sequences = std::deque<std::unique_ptr<Sequence>>;

  // A step between submit and collect.
  struct Flight {
    model::BatchPlan batch;
    std::vector<StepShare> shares;
    std::vector<Sequence*> sequences;  // of the shares; null: ended since
    std::int32_t num_ids = 0;          // that its rows want
    std::int64_t num_changes = 0;      // of logits, at most, before they are chosen
    bool has_chosen = false;           // where it chooses later
  };

  void expire(Clock::time_point now);
  StepPlan plan();
  // Whether a step may be submitted behind the one in flight: nobody would stay behind.
  bool can_follow(const StepPlan& plan) const;
  bool launch(StepHost& host, Clock::time_point now);
  // Has the ids of a step chosen that waits for it. All that was found before is known.
  void choose_ids(Flight& flight);
  void land(StepHost& host);
  // All that is in flight comes to nothing.
  void give_up_flights(StepHost& host);
  void carry_out(const StepPlan& plan, Flight& flight, Clock::time_point now);
  static void add_rows(Sequence& sequence, std::int32_t rows, const model::RunnerLimits& limits,
                       Flight& flight);
  // Whether the row's id is all that is asked of the runner.
  static bool finds_id(const Sequence& sequence, std::int32_t position,
                       const model::RunnerLimits& limits, Flight& flight);
  void use_output(const Flight& flight, const model::StepOutput& output);
  void deliver(SampleJob& job, Clock::time_point now);
  void end(Sequence& sequence, FinishReason reason, std::optional<Error> why = {});
  void end_cancelled(std::span<const GenerationId> ids);
  void remove_ended();
  void refresh_stats();
  Flight& flight_at(std::size_t index) {
    return flights_[(first_flight_ + index) % flights_.size()];
  }

  EngineOptions options_;
  const base::Clock& clock_;
  std::unique_ptr<model::ModelRunner> runner_;
  kv::BlockCache cache_;
  SamplingTeam team_;
  EngineStats stats_;

  Sequences running_;  // oldest first
  Sequences waiting_;  // oldest first, all younger than those running
  Sequences ended_;    // their sinks have not heard yet

  std::array<Flight, 2> flights_;  // a ring
  std::size_t first_flight_ = 0;
  std::size_t num_flights_ = 0;
  const std::vector<StepShare>* untold_ = nullptr;  // of a step whose end the host must hear of

  // Of the current step; kept to keep their memory.
  std::vector<SequenceView> running_views_, waiting_views_;
  std::vector<SampleJob> jobs_;
  std::vector<EditJob> edit_jobs_;
  std::vector<model::RowEdits> edits_;
  std::vector<GenerationId> ids_;
};

}  // namespace llorch::engine
