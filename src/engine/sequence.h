// One request on its way through the engine: its tokens, its cache blocks, and what its sink hears.
//
//   Waiting ──start──► Running ──end──► Ended ──notify──► (gone)
//      ▲                  │                ▲
//      └─────preempt──────┘   Waiting ─end─┘
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "engine/penalties.h"
#include "engine/request.h"
#include "engine/sampling_team.h"
#include "kv/block_cache.h"

namespace llorch::engine {

enum class SequenceState : std::uint8_t { Waiting, Running, Ended };

// Owned by the engine's thread once submitted.
class Sequence {
 public:
  // The requests are valid (request_check.h).
  Sequence(std::uint64_t id, GenerationRequest request, std::shared_ptr<GenerationSink> sink,
           Clock::time_point submitted);
  Sequence(std::uint64_t id, EmbeddingRequest request, std::shared_ptr<EmbeddingSink> sink,
           Clock::time_point submitted);

  std::uint64_t id() const { return id_; }
  SequenceState state() const { return state_; }
  Clock::time_point deadline() const { return deadline_; }
  bool is_generation() const { return std::holds_alternative<Generation>(work_); }

  std::span<const TokenId> tokens() const { return tokens_; }  // prompt and output
  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::int32_t num_prompt() const { return num_prompt_; }
  // Tokens whose keys and values are in the blocks.
  std::int32_t num_computed() const { return num_computed_; }
  bool all_computed() const { return num_computed_ == num_tokens(); }
  // The same and those of steps in flight.
  std::int32_t num_planned() const { return num_planned_; }
  bool all_planned() const { return num_planned_ >= num_tokens(); }
  // A step in flight finds its next token, and another one is to follow: the row of that token may
  // be submitted before anybody knows it.
  bool can_run_ahead() const;
  // The place of that token among the ids that the step finds.
  std::int32_t awaited() const { return awaited_; }
  // What is in flight is all that it wants.
  bool ends_in_flight() const;
  std::span<const kv::BlockId> blocks() const { return blocks_; }

  // What the prefix cache has of it, while it waits, up to the first row whose result it still
  // needs: pooling needs every row, scoring those that it has not told of. Returns how many of the
  // blocks nobody holds.
  std::int32_t find_cached(const kv::BlockCache& cache);
  std::int32_t num_cached_blocks() const { return static_cast<std::int32_t>(found_.size()); }

  // Waiting → Running, with the blocks that find_cached found. Returns how many tokens of the
  // prompt they hold, at the first start only.
  // Its sink may fail: see has_failed().
  std::int32_t start(kv::BlockCache& cache, Clock::time_point now);
  // Its sink threw: it has to be ended with Failed.
  bool has_failed() const { return error_.has_value() && state_ != SequenceState::Ended; }
  // Takes the blocks that `rows` more tokens need; the scheduler has counted them.
  void reserve(kv::BlockCache& cache, std::int32_t rows);
  // Whether the row of this token has a hidden row that pooling needs.
  bool wants_hidden(std::int32_t position) const;
  // Whether the logits of this row are needed: to score the token of the prompt that follows, or to
  // choose the next one.
  bool wants_logits(std::int32_t position) const;
  // Rows before its last may want logits, too.
  bool scores() const { return num_scored_ < num_to_score_; }
  // How the one id is found that is all that counts of this row, if it is: the most probable; or
  // drawn by sampling() and draw_at(), where that is no more than a temperature also by a runner
  // that does not choose.
  enum class IdBy : std::uint8_t { None, Argmax, Draw, Choice };
  IdBy wants_id_by(std::int32_t position) const;
  // The logits are edited before an id is chosen of them.
  bool is_edited() const;
  // The logits that edit() changes one by one, at most; nothing where it cannot say all of it.
  std::optional<std::int64_t> num_changes() const;
  // What is done to the logits of the job's row; any thread while the owner waits.
  void edit(EditJob& job, std::int32_t vocab_size) const;
  // It has to be ended with Failed: see has_failed().
  void fail(Error error) { error_ = std::move(error); }
  const SamplingParams& sampling() const { return std::get<Generation>(work_).sampling; }
  std::uint64_t draw_at(std::int32_t position) const;
  // A step with so many more tokens is submitted. `awaited`: the place of the id that it finds for
  // the last of them, or -1.
  void plan(std::int32_t rows, std::int32_t awaited);
  // What is in flight comes to nothing.
  void forget_planned() { num_planned_ = num_computed_; }
  // A completed step computed so many more tokens. Blocks that are full now are published.
  void advance(kv::BlockCache& cache, std::int32_t rows);
  // Pools a hidden row; they come in order of positions. (dim)
  void pool(std::span<const float> hidden);
  // Running → Waiting: gives its blocks back. What it has said stays said.
  void preempt(kv::BlockCache& cache);

  // The token that follows the row of the job: how probable it is where the prompt has it, else
  // which one it shall be. Changes nothing here; any thread while the owner waits.
  Result<SampledToken> sample(Sampler& sampler, const SampleJob& job) const;
  // Takes the token that follows this position and tells the sink. Says why the generation ends
  // with this, if it does.
  std::optional<FinishReason> take(std::int32_t position, Result<SampledToken> token,
                                   Clock::time_point now);

  // Any state → Ended: gives its blocks back; the sink hears of it with notify(). An embedding that
  // is complete ends with MaxTokens: it has no reason of its own.
  void end(kv::BlockCache& cache, FinishReason reason);
  // The same for a reason that has words: Failed, or Cancelled by the engine itself.
  void end(kv::BlockCache& cache, FinishReason reason, Error why);
  // Once, after end().
  void notify(Clock::time_point now);
  FinishReason finish_reason() const { return reason_; }

 private:
  struct Generation {
    std::shared_ptr<GenerationSink> sink;
    SamplingParams sampling;
    std::vector<TokenId> end_ids;
    std::unique_ptr<TokenConstraint> constraint;
    std::optional<TokenCounts> counts;
    bool repeats_bias = false;  // of one id: added one after the other, on the host
    std::int32_t max_tokens = 0;
    kv::Salt salt = 0;
  };
  struct Embedding {
    std::shared_ptr<EmbeddingSink> sink;
    Pooling pooling = Pooling::Mean;
    std::vector<double> sum;  // (dim)
  };

  void add_output(Generation& generation, TokenId id);
  void give_back(kv::BlockCache& cache);
  template <class Call>
  bool tell_sink(Call&& call);
  template <class Call>
  std::optional<FinishReason> ask_sink(Call&& call);
  // The row's token is the prompt's.
  bool is_scored(std::int32_t position) const { return position < num_to_score_; }
  Result<std::vector<float>> result_of(const Embedding& embedding) const;
  std::int32_t num_output() const { return num_tokens() - num_prompt_; }

  // Constant after construction.
  std::uint64_t id_;
  Clock::time_point deadline_;
  Clock::time_point submitted_;
  std::int32_t num_prompt_ = 0;

  SequenceState state_ = SequenceState::Waiting;
  std::variant<Generation, Embedding> work_;
  std::vector<TokenId> tokens_;
  std::int32_t num_computed_ = 0;
  std::int32_t num_planned_ = 0;  // at least num_computed_, at most one more than there are tokens
  std::int32_t awaited_ = -1;     // of the step that was planned last
  std::vector<kv::BlockId> blocks_;
  std::vector<kv::BlockId> found_;  // while waiting
  std::int32_t num_published_ = 0;  // blocks, from the front
  std::int32_t num_to_score_ = 0;   // rows, from the first; constant after construction
  std::int32_t num_scored_ = 0;     // rows whose next token the sink has heard of
  std::int32_t cached_tokens_ = 0;  // at the first start
  std::int32_t num_preemptions_ = 0;
  std::optional<Clock::time_point> started_, first_token_, last_token_;
  FinishReason reason_ = FinishReason::MaxTokens;
  std::optional<Error> error_;
};

}  // namespace llorch::engine
