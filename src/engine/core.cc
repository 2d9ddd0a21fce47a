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
  return options;
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<model::ModelRunner> runner, const EngineOptions& options)
    : options_(within(options, runner->limits())),
      runner_(std::move(runner)),
      cache_({.num_blocks = runner_->limits().num_blocks,
              .block_tokens = runner_->limits().block_tokens,
              .share = options.prefix_cache}),
      sampler_(runner_->vocab_size()) {
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
  const Error stopping{ErrorCode::Cancelled, "this worker is stopping: the answer ends here"};
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
  host.step_ended(true, ids_);
  for (const GenerationId id : ids_) cancel(id);
  tell(host);
}

void EngineCore::step(StepHost& host) {
  const Clock::time_point now = Clock::now();
  expire(now);
  if (running_.empty() && waiting_.empty()) return tell(host);
  carry_out(plan(), now);
  tell(host);
  batch_.abort = host.step_begins(shares_);
  const model::StepOutput output = runner_->forward(batch_);
  ids_.clear();
  host.step_ended(output.aborted, ids_);
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (std::ranges::find(ids_, sequence->id()) != ids_.end()) {
      end(*sequence, FinishReason::Cancelled);
    }
  }
  if (!output.aborted) collect(output);
  remove_ended();
  for (const GenerationId id : ids_) cancel(id);  // Those that wait.
  tell(host);
}

void EngineCore::tell(StepHost& host) {
  refresh_stats();
  ids_.clear();
  for (const std::unique_ptr<Sequence>& sequence : ended_) ids_.push_back(sequence->id());
  host.report(stats_, ids_);
  const Clock::time_point now = Clock::now();
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
    running_views_.push_back({.tokens_known = sequence->num_tokens(),
                              .tokens_computed = sequence->num_computed(),
                              .blocks_held = static_cast<std::int32_t>(sequence->blocks().size()),
                              .blocks_alone = scarce ? cache_.num_held_once(sequence->blocks()) : 0,
                              .scores = sequence->scores()});
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
                    .max_running = options_.max_running});
}

void EngineCore::carry_out(const StepPlan& plan, Clock::time_point now) {
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
  batch_.rows.clear();
  batch_.block_tables.clear();
  shares_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) add_rows(*running_[i], plan.rows[i]);
}

void EngineCore::add_rows(Sequence& sequence, std::int32_t rows) {
  sequence.reserve(cache_, rows);
  shares_.push_back({sequence.id(), rows});
  const auto index = static_cast<std::int32_t>(batch_.block_tables.size());
  batch_.block_tables.push_back(sequence.blocks());
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int32_t position = sequence.num_computed() + i;
    batch_.rows.push_back({.token = sequence.tokens()[static_cast<std::size_t>(position)],
                           .position = position,
                           .sequence = index,
                           .wants_logits = sequence.wants_logits(position),
                           .wants_hidden = sequence.wants_hidden(position)});
  }
}

void EngineCore::collect(const model::StepOutput& output) {
  ++stats_.steps;
  const Clock::time_point now = Clock::now();
  const auto vocab = static_cast<std::size_t>(runner_->vocab_size());
  const auto dim = static_cast<std::size_t>(runner_->hidden_dim());
  const float* next_logits = output.logits.data();
  const float* next_hidden = output.hidden.data();
  std::span<const model::BatchRow> rows = batch_.rows;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const std::span<const model::BatchRow> own =
        rows.first(static_cast<std::size_t>(shares_[i].rows));
    rows = rows.subspan(own.size());
    if (sequence.has_failed()) end(sequence, FinishReason::Failed);
    const bool is_wanted = sequence.state() != SequenceState::Ended;
    if (is_wanted) sequence.advance(cache_, shares_[i].rows);
    for (const model::BatchRow& row : own) {
      stats_.prompt_tokens += row.position < sequence.num_prompt() ? 1 : 0;
      if (row.wants_hidden) {
        if (is_wanted) sequence.pool({next_hidden, dim});
        next_hidden += dim;
      }
      if (row.wants_logits) {
        if (sequence.state() != SequenceState::Ended)
          use_logits(sequence, row.position, {next_logits, vocab}, now);
        next_logits += vocab;
      }
    }
    if (sequence.state() != SequenceState::Ended && sequence.all_computed())
      end(sequence, FinishReason::MaxTokens);
  }
}

void EngineCore::use_logits(Sequence& sequence, std::int32_t position,
                            std::span<const float> logits, Clock::time_point now) {
  std::optional<FinishReason> reason;
  if (sequence.is_scored(position)) {
    reason = sequence.score(sampler_, logits);
  } else {
    const std::int32_t before = sequence.num_tokens();
    reason = sequence.choose(sampler_, logits, now);
    if (sequence.num_tokens() > before) {
      ++stats_.output_tokens;
      stats_.last_token_at = now;
    }
  }
  if (reason) end(sequence, *reason);
}

void EngineCore::end(Sequence& sequence, FinishReason reason, std::optional<Error> why) {
  if (why) {
    sequence.end(cache_, reason, std::move(*why));
  } else {
    sequence.end(cache_, reason);
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
