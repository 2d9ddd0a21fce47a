// What the engine is asked for and what it answers, in ids: text belongs to the layers above.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llorch::engine {

using TokenId = std::int32_t;
using Clock = std::chrono::steady_clock;  // whose points in time these are; base::Clock tells them

// How a token is chosen, in the order of application: logit bias, constraint, penalties (repetition
// over prompt and output; frequency and presence over the output), temperature, top-k, top-p,
// min-p, softmax, draw.
struct SamplingParams {
  float temperature = 1.0F;  // 0: the most probable, the lowest id among equals
  std::int64_t top_k = 0;    // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::uint64_t seed = 0;  // the draw at position p depends on (seed, p) alone
  // Log-probabilities of the model's own distribution (before anything above): none, or of the
  // chosen token and this many of the most probable.
  std::optional<std::int32_t> top_logprobs = {};
};

// Forbids what may not come next (JSON, a grammar). One generation each; one thread of the engine
// at a time calls it.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets the logits of ids that may not follow to -infinity. At least one id stays: an end id where
  // nothing else may come.
  virtual void mask(std::span<float> logits) = 0;
  // The same as bits: id i may follow where bit i % 32 of word i / 32 is set. Bits beyond the ids
  // are clear.
  virtual void allow(std::span<std::uint32_t> ids) = 0;
  virtual void accept(TokenId id) = 0;
};

struct GenerationRequest {
  std::vector<TokenId> prompt;  // at least one
  std::int32_t max_tokens = 0;  // prompt + max_tokens <= context; 0 with score_prompt only
  // The first tokens of the output, which were made elsewhere: the sink does not hear of them, and
  // max_tokens, penalties and the constraint count them. Fewer than max_tokens, no end id among
  // them, and the constraint accepts them.
  std::vector<TokenId> told = {};
  std::vector<TokenId> end_ids;  // drawing one of these ends the generation; it is not delivered
  SamplingParams sampling;
  std::unique_ptr<TokenConstraint> constraint;  // may be null
  // With sampling.top_logprobs only: the sink hears of the prompt's own tokens. Their rows are
  // computed then, whatever the prefix cache has of them.
  bool score_prompt = false;
  // What its keys and values depend on beside the tokens (an adapter): prefixes are shared among
  // equal salts only.
  std::uint64_t cache_salt = 0;
  Clock::time_point deadline = Clock::time_point::max();
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct GeneratedToken {
  TokenId id = 0;
  std::int32_t index = 0;  // of the output, from 0
  // With top_logprobs only.
  float logprob = 0;
  std::span<const TokenLogprob> top;  // most probable first; valid during the call
};

// A token of the prompt that follows another one, and how probable the model found it there.
struct ScoredToken {
  TokenId id = 0;
  std::int32_t index = 0;  // of the prompt, from 1
  float logprob = 0;
  std::span<const TokenLogprob> top;  // most probable first; valid during the call
};

struct GenerationStarted {
  std::int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  double queue_ms = 0;
};

enum class FinishReason : std::uint8_t {
  MaxTokens,
  EndToken,
  Stopped,    // the sink said so
  Cancelled,  // cancel(), the sink, or the engine stopping now (`error` says so)
  TimedOut,   // the deadline passed
  Failed,     // `error` says why
};

struct GenerationEnd {
  FinishReason reason = FinishReason::MaxTokens;
  std::optional<Error> error;  // with Failed; with Cancelled where the engine stopped
  std::int32_t tokens_out = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t preemptions = 0;
  double queue_ms = 0;    // submit to first compute
  double prefill_ms = 0;  // first compute to first token
  double decode_ms = 0;   // first token to last
};

enum class Verdict : std::uint8_t { Continue, Stop, Cancel };

// Hears of one generation, on the engine's thread: on_started once, with score_prompt
// on_prompt_token for each token of the prompt but the first, on_token for each token, both in
// order, on_finished exactly once and last, also where nothing was started. By then its cache
// blocks are free. Must be quick and must not call back into the engine. What it throws fails its
// own generation and nothing else.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void on_started(const GenerationStarted& started) = 0;
  virtual Verdict on_prompt_token(const ScoredToken& /*token*/) { return Verdict::Continue; }
  virtual Verdict on_token(const GeneratedToken& token) = 0;
  virtual void on_finished(const GenerationEnd& end) = 0;
};

enum class Pooling : std::uint8_t { Mean, Last };

// One vector for a text: the rows after the last norm, pooled; not normalised.
struct EmbeddingRequest {
  std::vector<TokenId> prompt;  // at least one, at most the context
  Pooling pooling = Pooling::Mean;
  Clock::time_point deadline = Clock::time_point::max();
};

// On the engine's thread, exactly once.
class EmbeddingSink {
 public:
  virtual ~EmbeddingSink() = default;
  virtual void on_finished(Result<std::vector<float>> embedding) = 0;
};

}  // namespace llorch::engine
