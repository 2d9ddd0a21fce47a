// TextSink: ids of one generation → pieces of text for its listener. Ends the generation at a stop
// string.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/streaming_decoder.h"
#include "worker/job_table.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// What the sink needs to know of its request.
struct TextSinkContext {
  std::string job_id;
  std::string model;
  std::uint64_t seed = 0;
  std::int64_t prompt_tokens = 0;
  std::vector<std::string> stop;
  bool with_logprobs = false;
  std::vector<engine::TokenId> markers = {};  // special tokens that are part of the text; sorted
  engine::Clock::time_point arrived = engine::Clock::now();
};

// Called on the engine's thread only.
class TextSink final : public engine::GenerationSink {
 public:
  // The answer's text goes on after `prompt`, which is not kept. The tokenizer outlives the engine.
  // `jobs` hears of the end before the listener does, so that a client may use its id again as soon
  // as it has the answer.
  TextSink(TextSinkContext context, const tokenizer::Tokenizer& tokenizer,
           std::span<const engine::TokenId> prompt,
           std::shared_ptr<worker_http::TextListener> listener);
  void set_job(std::shared_ptr<JobTable> jobs, JobTable::Use use);

  void on_started(const engine::GenerationStarted& started) override;
  engine::Verdict on_token(const engine::GeneratedToken& token) override;
  void on_finished(const engine::GenerationEnd& end) override;

 private:
  worker_http::TokenProbability describe(engine::TokenId id, float logprob) const;
  void report(const engine::GeneratedToken& token);
  bool deliver(std::string text);
  void flush_tail();
  Result<contract::InferenceResult> result_of(const engine::GenerationEnd& end) const;
  double since_arrival_ms() const;

  const TextSinkContext context_;
  std::shared_ptr<worker_http::TextListener> listener_;
  std::shared_ptr<JobTable> jobs_;
  JobTable::Use use_ = 0;
  tokenizer::StreamingDecoder decoder_;
  tokenizer::StopMatcher matcher_;
  std::vector<worker_http::TokenReport> reports_;  // since the last piece
  std::int64_t num_tokens_ = 0;                    // since the last piece
  std::string stop_;                               // the stop string that came
  double ttft_ms_ = -1;
};

}  // namespace llorch::worker
