#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/job_border.h"
#include "engine/random.h"
#include "engine/scheduler.h"

namespace llorch::engine {
namespace {

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

bool repeats_id(std::span<const std::pair<TokenId, float>> biases) {
  std::vector<TokenId> ids;
  for (const auto& [id, bias] : biases) ids.push_back(id);
  std::ranges::sort(ids);
  return std::ranges::adjacent_find(ids) != ids.end();
}

}  // namespace

Sequence::Sequence(std::uint64_t id, GenerationRequest request,
                   std::shared_ptr<GenerationSink> sink, Clock::time_point submitted)
    : id_(id),
      deadline_(request.deadline),
      submitted_(submitted),
      num_prompt_(static_cast<std::int32_t>(request.prompt.size())),
      work_(Generation{.sink = std::move(sink),
                       .sampling = std::move(request.sampling),
                       .end_ids = std::move(request.end_ids),
                       .constraint = std::move(request.constraint),
                       .counts = {},
                       .max_tokens = request.max_tokens,
                       .salt = request.cache_salt}),
      tokens_(std::move(request.prompt)),
      num_to_score_(request.score_prompt ? num_prompt_ - 1 : 0) {
  Generation& generation = std::get<Generation>(work_);
  if (has_penalties(generation.sampling)) {
    generation.counts.emplace(tokens_, generation.max_tokens);
  }
  generation.repeats_bias = repeats_id(generation.sampling.logit_bias);
  tokens_.reserve(tokens_.size() + static_cast<std::size_t>(generation.max_tokens));
  for (const TokenId token : request.told) add_output(generation, token);
}

void Sequence::add_output(Generation& generation, TokenId id) {
  if (generation.constraint != nullptr) generation.constraint->accept(id);
  if (generation.counts) generation.counts->add(id);
  tokens_.push_back(id);
}

Sequence::Sequence(std::uint64_t id, EmbeddingRequest request, std::shared_ptr<EmbeddingSink> sink,
                   Clock::time_point submitted)
    : id_(id),
      deadline_(request.deadline),
      submitted_(submitted),
      num_prompt_(static_cast<std::int32_t>(request.prompt.size())),
      work_(Embedding{.sink = std::move(sink), .pooling = request.pooling, .sum = {}}),
      tokens_(std::move(request.prompt)) {}

std::int32_t Sequence::find_cached(const kv::BlockCache& cache) {
  DCHECK(state_ == SequenceState::Waiting);
  found_.clear();
  if (!is_generation()) return 0;
  const std::int32_t needed = scores() ? num_scored_ + 1 : num_tokens();
  return cache.find_prefix(tokens().first(static_cast<std::size_t>(needed)), found_,
                           std::get<Generation>(work_).salt);
}

// False when the sink threw; its generation fails with that.
template <class Call>
bool Sequence::tell_sink(Call&& call) {
  try {
    call();
    return true;
  } catch (...) {
    error_ = base::error_of_current_exception("while handing the answer over");
    return false;
  }
}

// Its verdict as a reason to end, if it is one.
template <class Call>
std::optional<FinishReason> Sequence::ask_sink(Call&& call) {
  Verdict verdict = Verdict::Continue;
  if (!tell_sink([&] { verdict = call(); })) return FinishReason::Failed;
  if (verdict == Verdict::Stop) return FinishReason::Stopped;
  if (verdict == Verdict::Cancel) return FinishReason::Cancelled;
  return std::nullopt;
}

std::int32_t Sequence::start(kv::BlockCache& cache, Clock::time_point now) {
  CHECK(state_ == SequenceState::Waiting && blocks_.empty());
  state_ = SequenceState::Running;
  cache.hold(found_);
  blocks_.swap(found_);
  num_published_ = static_cast<std::int32_t>(blocks_.size());
  num_computed_ = num_planned_ = num_published_ * cache.block_tokens();
  if (started_) return 0;
  started_ = now;
  cached_tokens_ = std::min(num_computed_, num_prompt_);
  if (Generation* generation = std::get_if<Generation>(&work_)) {
    const GenerationStarted started{.cached_tokens = cached_tokens_,
                                    .queue_ms = milliseconds(now - submitted_)};
    tell_sink([&] { generation->sink->on_started(started); });
  }
  return cached_tokens_;
}

void Sequence::reserve(kv::BlockCache& cache, std::int32_t rows) {
  DCHECK(state_ == SequenceState::Running && num_planned_ + rows <= num_tokens() + 1);
  const auto wanted =
      static_cast<std::size_t>(blocks_for(num_planned_ + rows, cache.block_tokens()));
  while (blocks_.size() < wanted) {
    blocks_.push_back(cache.take());
    CHECK(blocks_.back() != kv::kNoBlock, "the scheduler promised more blocks than there are");
  }
}

bool Sequence::wants_hidden(std::int32_t position) const {
  const Embedding* embedding = std::get_if<Embedding>(&work_);
  return embedding != nullptr &&
         (embedding->pooling == Pooling::Mean || position + 1 == num_prompt_);
}

bool Sequence::wants_logits(std::int32_t position) const {
  const Generation* generation = std::get_if<Generation>(&work_);
  if (generation == nullptr) return false;
  if (is_scored(position)) return position >= num_scored_;
  return position + 1 >= num_tokens() && generation->max_tokens > 0;
}

Sequence::IdBy Sequence::wants_id_by(std::int32_t position) const {
  const SamplingParams& params = sampling();
  if (is_scored(position) || params.top_logprobs) return IdBy::None;
  if (params.temperature == 0) return IdBy::Argmax;
  const bool is_plain = params.top_k == 0 && params.top_p >= 1.0F && params.min_p == 0;
  return is_plain ? IdBy::Draw : IdBy::Choice;
}

bool Sequence::is_edited() const {
  const auto* generation = std::get_if<Generation>(&work_);
  return generation != nullptr && (!generation->sampling.logit_bias.empty() || generation->counts ||
                                   generation->constraint != nullptr);
}

std::optional<std::int64_t> Sequence::num_changes() const {
  const Generation& generation = std::get<Generation>(work_);
  if (generation.repeats_bias) return std::nullopt;
  // And the id that a step in flight finds.
  const std::int64_t counted = generation.counts ? std::ssize(*generation.counts) + 1 : 0;
  return counted + std::ssize(generation.sampling.logit_bias);
}

void Sequence::edit(EditJob& job, std::int32_t vocab_size) const {
  const Generation& generation = std::get<Generation>(work_);
  const SamplingParams& params = generation.sampling;
  if (generation.counts) {
    generation.counts->add_changes(job.changes);
    job.edits.repetition_penalty = params.repetition_penalty;
    job.edits.frequency_penalty = params.frequency_penalty;
    job.edits.presence_penalty = params.presence_penalty;
  }
  const auto num_counted = std::ssize(job.changes);
  for (const auto& [id, bias] : params.logit_bias) {
    const auto end = job.changes.begin() + num_counted;
    const auto place =
        std::ranges::lower_bound(job.changes.begin(), end, id, {}, &model::LogitChange::id);
    if (place != end && place->id == id) {
      place->bias = bias;
    } else {
      job.changes.push_back({.id = id, .bias = bias});
    }
  }
  if (generation.constraint != nullptr) {
    constexpr std::int32_t kWordIds = 32;
    job.may_follow.resize(static_cast<std::size_t>((vocab_size + kWordIds - 1) / kWordIds));
    generation.constraint->allow(job.may_follow);
  }
  job.edits.changes = job.changes;
  job.edits.may_follow = job.may_follow;
}

std::uint64_t Sequence::draw_at(std::int32_t position) const {
  return draw_bits(std::get<Generation>(work_).sampling.seed, position + 1);
}

bool Sequence::can_run_ahead() const {
  const Generation* generation = std::get_if<Generation>(&work_);
  return generation != nullptr && awaited_ >= 0 && num_computed_ < num_planned_ &&
         num_planned_ == num_tokens() && num_output() + 1 < generation->max_tokens;
}

bool Sequence::ends_in_flight() const {
  const Generation* generation = std::get_if<Generation>(&work_);
  return num_computed_ < num_planned_ && num_planned_ == num_tokens() &&
         (generation == nullptr || num_output() + 1 >= generation->max_tokens);
}

void Sequence::plan(std::int32_t rows, std::int32_t awaited) {
  CHECK(num_planned_ + rows <= num_tokens() + (can_run_ahead() ? 1 : 0));
  num_planned_ += rows;
  awaited_ = awaited;
}

void Sequence::advance(kv::BlockCache& cache, std::int32_t rows) {
  DCHECK(state_ == SequenceState::Running);
  num_computed_ += rows;
  CHECK(num_computed_ <= num_planned_);
  if (!is_generation() || !cache.shares()) return;
  const std::int32_t size = cache.block_tokens();
  for (; (num_published_ + 1) * size <= num_computed_; ++num_published_) {
    const auto index = static_cast<std::size_t>(num_published_);
    const kv::BlockId parent = index == 0 ? kv::kNoBlock : blocks_[index - 1];
    blocks_[index] = cache.publish(
        blocks_[index], parent,
        tokens().subspan(index * static_cast<std::size_t>(size), static_cast<std::size_t>(size)),
        std::get<Generation>(work_).salt);
  }
}

void Sequence::pool(std::span<const float> hidden) {
  Embedding& embedding = std::get<Embedding>(work_);
  embedding.sum.resize(hidden.size());
  for (std::size_t i = 0; i < hidden.size(); ++i)
    embedding.sum[i] += static_cast<double>(hidden[i]);
}

void Sequence::preempt(kv::BlockCache& cache) {
  CHECK(state_ == SequenceState::Running);
  give_back(cache);
  state_ = SequenceState::Waiting;
  ++num_preemptions_;
  if (Embedding* embedding = std::get_if<Embedding>(&work_)) embedding->sum.clear();
}

Result<SampledToken> Sequence::sample(Sampler& sampler, const SampleJob& job) const {
  const Generation& generation = std::get<Generation>(work_);
  const std::int32_t next = job.position + 1;
  if (is_scored(job.position)) {
    return sampler.score({.logits = job.logits,
                          .id = tokens_[static_cast<std::size_t>(next)],
                          .position = next,
                          .num_top = *generation.sampling.top_logprobs});
  }
  if (job.logits.empty()) {
    if (job.argmax >= 0) return SampledToken{.id = job.argmax};
    return Error{ErrorCode::Internal,
                 fmt::format("the logits at position {} hold NaN or infinity{}: expected finite "
                             "numbers; the weights of the model may be damaged",
                             next, is_edited() ? ", or every id is forbidden" : "")};
  }
  return sampler.sample({.logits = job.logits,
                         .params = generation.sampling,
                         .position = next,
                         .counts = generation.counts ? &*generation.counts : nullptr,
                         .constraint = generation.constraint.get()});
}

std::optional<FinishReason> Sequence::take(std::int32_t position, Result<SampledToken> token,
                                           Clock::time_point now) {
  DCHECK(state_ == SequenceState::Running);
  Generation& generation = std::get<Generation>(work_);
  if (!token.ok()) {
    error_ = token.error();
    return FinishReason::Failed;
  }
  if (is_scored(position)) {
    CHECK(position == num_scored_++, "the tokens of a prompt are told in order");
    return ask_sink([&] {
      return generation.sink->on_prompt_token(
          {.id = token->id, .index = position + 1, .logprob = token->logprob, .top = token->top});
    });
  }
  if (std::ranges::find(generation.end_ids, token->id) != generation.end_ids.end()) {
    return FinishReason::EndToken;
  }
  const std::int32_t index = num_output();
  add_output(generation, token->id);
  if (!first_token_) first_token_ = now;
  last_token_ = now;
  const std::optional<FinishReason> reason = ask_sink([&] {
    return generation.sink->on_token(
        {.id = token->id, .index = index, .logprob = token->logprob, .top = token->top});
  });
  if (!reason && num_output() == generation.max_tokens) return FinishReason::MaxTokens;
  return reason;
}

void Sequence::end(kv::BlockCache& cache, FinishReason reason) {
  CHECK(state_ != SequenceState::Ended, "a request ends once");
  give_back(cache);
  state_ = SequenceState::Ended;
  reason_ = reason;
}

void Sequence::end(kv::BlockCache& cache, FinishReason reason, Error why) {
  end(cache, reason);
  error_ = std::move(why);
}

void Sequence::notify(Clock::time_point now) {
  CHECK(state_ == SequenceState::Ended);
  if (const Embedding* embedding = std::get_if<Embedding>(&work_)) {
    tell_sink([&] { embedding->sink->on_finished(result_of(*embedding)); });
    return;
  }
  GenerationEnd end = {.reason = reason_,
                       .error = std::move(error_),
                       .tokens_out = num_output(),
                       .prompt_tokens = num_prompt_,
                       .cached_tokens = cached_tokens_,
                       .preemptions = num_preemptions_};
  end.queue_ms = milliseconds(started_.value_or(now) - submitted_);
  if (started_) end.prefill_ms = milliseconds(first_token_.value_or(now) - *started_);
  if (first_token_) end.decode_ms = milliseconds(*last_token_ - *first_token_);
  // Nobody is left to hear of a failure here.
  tell_sink([&] { std::get<Generation>(work_).sink->on_finished(end); });
}

Result<std::vector<float>> Sequence::result_of(const Embedding& embedding) const {
  if (error_) return *error_;
  if (reason_ == FinishReason::Cancelled)
    return Error{ErrorCode::Cancelled, "the embedding was cancelled"};
  if (reason_ == FinishReason::TimedOut) {
    return Error{ErrorCode::DeadlineExceeded,
                 "the deadline passed before the embedding was computed"};
  }
  const double rows = embedding.pooling == Pooling::Mean ? num_prompt_ : 1;
  std::vector<float> pooled;
  pooled.reserve(embedding.sum.size());
  for (const double sum : embedding.sum) pooled.push_back(static_cast<float>(sum / rows));
  const auto bad = std::ranges::find_if(pooled, [](float x) { return !std::isfinite(x); });
  if (bad == pooled.end()) return pooled;
  return Error{ErrorCode::Internal,
               fmt::format("component {} of the embedding is {}: expected a finite number; the "
                           "weights of the model may be damaged",
                           bad - pooled.begin(), *bad)};
}

void Sequence::give_back(kv::BlockCache& cache) {
  cache.release(blocks_);
  blocks_.clear();
  num_published_ = 0;
  num_computed_ = num_planned_ = 0;
}

}  // namespace llorch::engine
