#include "engine/core.h"

#include <algorithm>

#include "base/check.h"

namespace llorch::engine {
namespace {

EngineOptions within(EngineOptions options, const model::RunnerLimits& limits) {
  options.step_tokens = std::clamp(options.step_tokens, 1, limits.rows);
  // Every sequence has a row in every step, and may want logits in it.
  options.max_running = std::clamp(
      options.max_running, 1, std::min({limits.sequences, limits.logit_rows, options.step_tokens}));
  options.max_waiting = std::max(options.max_waiting, 1);
  options.sampling_threads = std::max(options.sampling_threads, 1);
  CHECK(options.clock != nullptr);
  return options;
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<model::ModelRunner> runner, const EngineOptions& options)
    : options_(within(options, runner->limits())),
      clock_(*options_.clock),
      runner_(std::move(runner)),
      cache_({.num_blocks = runner_->limits().num_blocks,
              .block_tokens = runner_->limits().block_tokens,
              .share = options.prefix_cache}),
      team_(runner_->vocab_size(), options_.sampling_threads) {
  stats_.max_running = options_.max_running;
  stats_.blocks_total = cache_.num_blocks();
  refresh_stats();
}

std::int32_t EngineCore::max_sequence_tokens() const {
  const std::int64_t room = std::int64_t{cache_.num_blocks()} * cache_.block_tokens();
  return static_cast<std::int32_t>(std::min<std::int64_t>(room, runner_->context_length()));
}

void EngineCore::add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

void EngineCore::cancel(GenerationId id) {
  for (Sequences* sequences : {&running_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *sequences) {
      if (sequence->id() == id && sequence->state() != SequenceState::Ended) {
        end(*sequence, FinishReason::Cancelled);
      }
    }
  }
  remove_ended();
}

void EngineCore::cancel_all() {
  // Nobody asked for it: another worker can answer.
  const Error stopping{ErrorCode::Unavailable, "this worker is stopping: the answer ends here"};
  for (Sequences* sequences : {&running_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *sequences) {
      end(*sequence, FinishReason::Cancelled, stopping);
    }
  }
  remove_ended();
}

void EngineCore::fail_step(StepHost& host, const Error& error) {
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence != nullptr && sequence->state() != SequenceState::Ended)
      end(*sequence, FinishReason::Failed, error);
  }
  std::erase_if(running_, [](const std::unique_ptr<Sequence>& s) { return s == nullptr; });
  std::erase_if(waiting_, [](const std::unique_ptr<Sequence>& s) { return s == nullptr; });
  remove_ended();
  ids_.clear();
  host.step_ended(untold_ != nullptr ? *untold_ : std::vector<StepShare>(), true, ids_);
  untold_ = nullptr;
  end_cancelled(ids_);
  tell(host);
}

void EngineCore::step(StepHost& host) {
  const Clock::time_point now = clock_.now();
  expire(now);
  const auto depth = std::min<std::size_t>(
      flights_.size(), static_cast<std::size_t>(runner_->limits().steps_in_flight));
  while (num_flights_ < depth && launch(host, now)) {
  }
  if (num_flights_ > 0) {
    choose_ids(flight_at(0));
    land(host);
  }
  tell(host);
}

// Submits what can be computed now; false when that is nothing.
bool EngineCore::launch(StepHost& host, Clock::time_point now) {
  if (running_.empty() && waiting_.empty()) return false;
  if (num_flights_ > 0) choose_ids(flight_at(num_flights_ - 1));
  const StepPlan planned = plan();
  if (num_flights_ > 0 && !can_follow(planned)) return false;
  Flight& flight = flight_at(num_flights_);
  carry_out(planned, flight, now);
  if (flight.shares.empty()) return false;
  tell(host);
  flight.batch.abort = host.step_begins(flight.shares);
  untold_ = &flight.shares;
  runner_->submit(flight.batch);
  untold_ = nullptr;
  ++num_flights_;
  return true;
}

void EngineCore::choose_ids(Flight& flight) {
  if (!flight.batch.chooses_later || flight.has_chosen) return;
  flight.has_chosen = true;
  edit_jobs_.resize(static_cast<std::size_t>(flight.num_ids));
  std::size_t next = 0;
  for (const model::BatchRow& row : flight.batch.rows) {
    if (!row.wants_argmax) continue;
    // Gone since, or as the model has it.
    Sequence* sequence = flight.sequences[static_cast<std::size_t>(row.sequence)];
    const bool is_edited = sequence != nullptr && sequence->is_edited();
    edit_jobs_[next++].sequence = is_edited ? sequence : nullptr;
  }
  team_.edit(edit_jobs_);
  edits_.clear();
  for (const EditJob& job : edit_jobs_) edits_.push_back(job.edits);
  runner_->choose(edits_);
}

void EngineCore::land(StepHost& host) {
  const Flight& flight = flight_at(0);
  first_flight_ = (first_flight_ + 1) % flights_.size();
  --num_flights_;
  untold_ = &flight.shares;
  const model::StepOutput output = runner_->collect();
  ids_.clear();
  host.step_ended(flight.shares, output.aborted, ids_);
  untold_ = nullptr;
  end_cancelled(ids_);
  if (output.aborted) {
    for (Sequence* sequence : flight.sequences) {
      if (sequence != nullptr) sequence->forget_planned();
    }
    give_up_flights(host);
  } else {
    use_output(flight, output);
  }
  remove_ended();
}

// What was planned behind an aborted step may rest on rows that were never written.
void EngineCore::give_up_flights(StepHost& host) {
  while (num_flights_ > 0) {
    const Flight& flight = flight_at(0);
    first_flight_ = (first_flight_ + 1) % flights_.size();
    --num_flights_;
    [[maybe_unused]] const model::StepOutput unused = runner_->collect();
    ids_.clear();
    host.step_ended(flight.shares, true, ids_);
    end_cancelled(ids_);
    for (Sequence* sequence : flight.sequences) {
      if (sequence != nullptr) sequence->forget_planned();
    }
  }
}

void EngineCore::end_cancelled(std::span<const GenerationId> ids) {
  for (const GenerationId id : ids) cancel(id);
}

void EngineCore::tell(StepHost& host) {
  refresh_stats();
  ids_.clear();
  for (const std::unique_ptr<Sequence>& sequence : ended_) ids_.push_back(sequence->id());
  host.report(stats_, ids_);
  const Clock::time_point now = clock_.now();
  for (const std::unique_ptr<Sequence>& sequence : ended_) sequence->notify(now);
  ended_.clear();
}

void EngineCore::expire(Clock::time_point now) {
  for (Sequences* sequences : {&running_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *sequences) {
      if (sequence->deadline() <= now) end(*sequence, FinishReason::TimedOut);
    }
  }
  remove_ended();
}

StepPlan EngineCore::plan() {
  running_views_.clear();
  waiting_views_.clear();
  // What preempting somebody would yield matters only when blocks may run out.
  const bool scarce = cache_.num_free() < static_cast<std::int32_t>(running_.size());
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    const bool is_ahead = sequence->can_run_ahead();
    running_views_.push_back({.tokens_known = sequence->num_tokens() + (is_ahead ? 1 : 0),
                              .tokens_computed = sequence->num_planned(),
                              .blocks_held = static_cast<std::int32_t>(sequence->blocks().size()),
                              .blocks_alone = scarce ? cache_.num_held_once(sequence->blocks()) : 0,
                              .scores = sequence->scores(),
                              .is_busy = sequence->all_planned() && !is_ahead});
  }
  const std::size_t places = static_cast<std::size_t>(options_.max_running) - running_.size();
  std::int32_t wanted = 0;
  for (std::size_t i = 0; i < std::min(places, waiting_.size()); ++i) {
    // Whoever stands behind one that cannot be admitted will not be: do not look for his prefix.
    if (wanted > cache_.num_free()) break;
    Sequence& sequence = *waiting_[i];
    const std::int32_t idle = sequence.find_cached(cache_);
    wanted += blocks_for(sequence.num_tokens(), cache_.block_tokens()) -
              sequence.num_cached_blocks() + idle;
    waiting_views_.push_back(
        {.tokens_known = sequence.num_tokens(),
         .tokens_computed = sequence.num_cached_blocks() * cache_.block_tokens(),
         .blocks_held = sequence.num_cached_blocks(),
         .blocks_alone = idle,
         .scores = sequence.scores()});
  }
  return plan_step({.running = running_views_,
                    .waiting = waiting_views_,
                    .blocks_total = cache_.num_blocks(),
                    .blocks_free = cache_.num_free(),
                    .block_tokens = cache_.block_tokens(),
                    .step_tokens = options_.step_tokens,
                    .logit_rows = runner_->limits().logit_rows,
                    .max_running = options_.max_running,
                    .may_preempt = num_flights_ == 0});
}

// A sequence that waits for the host (its logits are wanted) keeps all
// others in step with it: served every other step, it would be twice as slow, and so would whoever
// comes with a prompt, because submitting many rows takes the host as long as the device.
bool EngineCore::can_follow(const StepPlan& plan) const {
  if (plan.num_admitted > 0) return false;
  std::int64_t changes = 0;  // of logits: without room for all, some rows would be fetched
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    const bool goes_on = plan.rows[i] == 1 && sequence.can_run_ahead();
    if (!goes_on && !sequence.ends_in_flight()) return false;
    if (goes_on && sequence.is_edited()) changes += sequence.num_changes().value_or(0);
  }
  return changes <= runner_->limits().logit_changes;
}

void EngineCore::carry_out(const StepPlan& plan, Flight& flight, Clock::time_point now) {
  for (std::int32_t i = 0; i < plan.num_preempted; ++i) {
    running_.back()->preempt(cache_);
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
    ++stats_.preemptions;
  }
  // All that was found is held before the first block is taken: taking may give away idle blocks.
  for (std::int32_t i = 0; i < plan.num_admitted; ++i) {
    stats_.cached_tokens += waiting_.front()->start(cache_, now);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  CHECK(plan.rows.size() == running_.size());
  flight.batch.rows.clear();
  flight.batch.block_tables.clear();
  flight.shares.clear();
  flight.sequences.clear();
  flight.num_ids = 0;
  flight.num_changes = 0;
  flight.has_chosen = false;
  flight.batch.chooses_later = false;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (plan.rows[i] == 0) continue;
    running_[i]->reserve(cache_, plan.rows[i]);
    add_rows(*running_[i], plan.rows[i], runner_->limits(), flight);
  }
}

void EngineCore::add_rows(Sequence& sequence, std::int32_t rows, const model::RunnerLimits& limits,
                          Flight& flight) {
  flight.shares.push_back({sequence.id(), rows});
  flight.sequences.push_back(&sequence);
  const auto index = static_cast<std::int32_t>(flight.batch.block_tables.size());
  flight.batch.block_tables.push_back(sequence.blocks());
  std::int32_t awaited = -1;
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int32_t position = sequence.num_planned() + i;
    const bool is_needed = sequence.wants_logits(position);
    const bool is_found = is_needed && finds_id(sequence, position, limits, flight);
    const bool is_known = position < sequence.num_tokens();
    awaited = is_found ? flight.num_ids++ : -1;
    model::BatchRow row{
        .token = is_known ? sequence.tokens()[static_cast<std::size_t>(position)] : 0,
        .position = position,
        .sequence = index,
        .wants_logits = is_needed && !is_found,
        .wants_argmax = is_found,
        .wants_hidden = sequence.wants_hidden(position),
        .awaited = is_known ? -1 : sequence.awaited()};
    if (is_found && sequence.sampling().temperature > 0) {
      const SamplingParams& params = sequence.sampling();
      row.temperature = params.temperature;
      row.draw = sequence.draw_at(position);
      row.top_k = params.top_k;
      row.top_p = params.top_p;
      row.min_p = params.min_p;
    }
    flight.batch.rows.push_back(row);
  }
  sequence.plan(rows, awaited);
}

bool EngineCore::finds_id(const Sequence& sequence, std::int32_t position,
                          const model::RunnerLimits& limits, Flight& flight) {
  using IdBy = Sequence::IdBy;
  const IdBy by = sequence.wants_id_by(position);
  const bool is_found = (by == IdBy::Argmax && limits.finds_argmax) ||
                        (by == IdBy::Draw && limits.draws) ||
                        (by == IdBy::Choice && limits.chooses);
  if (!is_found || !sequence.is_edited()) return is_found;
  const std::optional<std::int64_t> changes = sequence.num_changes();
  if (limits.logit_changes == 0 || !changes || flight.num_changes + *changes > limits.logit_changes)
    return false;
  flight.num_changes += *changes;
  flight.batch.chooses_later = true;
  return true;
}

void EngineCore::use_output(const Flight& flight, const model::StepOutput& output) {
  ++stats_.steps;
  const auto vocab = static_cast<std::size_t>(runner_->vocab_size());
  const auto dim = static_cast<std::size_t>(runner_->hidden_dim());
  const float* next_logits = output.logits.data();
  const float* next_hidden = output.hidden.data();
  const std::int32_t* next_argmax = output.argmax.data();
  std::span<const model::BatchRow> rows = flight.batch.rows;
  jobs_.clear();
  for (std::size_t i = 0; i < flight.shares.size(); ++i) {
    Sequence* sequence = flight.sequences[i];
    const auto count = static_cast<std::size_t>(flight.shares[i].rows);
    if (sequence != nullptr && sequence->has_failed()) {
      end(*sequence, FinishReason::Failed);
      sequence = nullptr;
    }
    if (sequence != nullptr) sequence->advance(cache_, flight.shares[i].rows);
    for (const model::BatchRow& row : rows.first(count)) {
      if (sequence != nullptr) {
        stats_.prompt_tokens += row.position < sequence->num_prompt() ? 1 : 0;
        if (row.wants_hidden) sequence->pool({next_hidden, dim});
        if (row.wants_logits) jobs_.push_back({sequence, row.position, {next_logits, vocab}});
        if (row.wants_argmax) jobs_.push_back({sequence, row.position, {}, *next_argmax});
      }
      next_hidden += row.wants_hidden ? dim : 0;
      next_logits += row.wants_logits ? vocab : 0;
      next_argmax += row.wants_argmax ? 1 : 0;
    }
    rows = rows.subspan(count);
  }
  team_.sample(jobs_);
  const Clock::time_point now = clock_.now();
  for (SampleJob& job : jobs_) deliver(job, now);
  for (Sequence* sequence : flight.sequences) {
    if (sequence != nullptr && sequence->all_computed()) end(*sequence, FinishReason::MaxTokens);
  }
}

void EngineCore::deliver(SampleJob& job, Clock::time_point now) {
  Sequence& sequence = *job.sequence;
  if (sequence.state() == SequenceState::Ended) return;
  const std::int32_t before = sequence.num_tokens();
  const std::optional<FinishReason> reason =
      sequence.take(job.position, *std::move(job.token), now);
  if (sequence.num_tokens() > before) {
    ++stats_.output_tokens;
    stats_.last_token_at = now;
  }
  if (reason) end(sequence, *reason);
}

void EngineCore::end(Sequence& sequence, FinishReason reason, std::optional<Error> why) {
  if (why) {
    sequence.end(cache_, reason, std::move(*why));
  } else {
    sequence.end(cache_, reason);
  }
  for (Flight& flight : flights_) {
    std::ranges::replace(flight.sequences, &sequence, static_cast<Sequence*>(nullptr));
  }
  if (sequence.is_generation()) ++stats_.finished[static_cast<std::size_t>(reason)];
}

void EngineCore::remove_ended() {
  for (Sequences* sequences : {&running_, &waiting_}) {
    for (std::unique_ptr<Sequence>& sequence : *sequences) {
      if (sequence->state() == SequenceState::Ended) ended_.push_back(std::move(sequence));
    }
    std::erase_if(*sequences, [](const std::unique_ptr<Sequence>& s) { return s == nullptr; });
  }
}

void EngineCore::refresh_stats() {
  stats_.waiting = static_cast<std::int32_t>(waiting_.size());
  stats_.running = static_cast<std::int32_t>(running_.size());
  stats_.blocks_free = cache_.num_free();
}

}  // namespace llorch::engine
