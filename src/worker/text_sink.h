// TextSink: ids of one generation → pieces of text for its listener. Ends the generation at a stop
// string.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
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
  bool score_prompt = false;  // the prompt's tokens are reported, too
  bool prompt_shows_special =
      false;  // special tokens are part of the prompt's text: it came as ids
  std::vector<engine::TokenId> markers = {};  // special tokens that are part of the text; sorted
  std::vector<engine::TokenId> told = {};     // output that was made elsewhere; no end id
  engine::Clock::time_point arrived = engine::Clock::now();
};

// Called on the engine's thread only.
class TextSink final : public engine::GenerationSink {
 public:
  // The answer's text goes on after `prompt`, which is not kept, and what was told, which is read
  // here and now. The tokenizer outlives the engine.
  // `jobs` hears of the end before the listener does, so that a client may use its id again as soon
  // as it has the answer.
  TextSink(TextSinkContext context, const tokenizer::Tokenizer& tokenizer,
           std::span<const engine::TokenId> prompt,
           std::shared_ptr<worker_http::TextListener> listener);
  void set_job(std::shared_ptr<JobTable> jobs, JobTable::Use use);

  // How many of the told ids there are up to the one that completed a stop string; nothing when
  // none did.
  std::optional<std::size_t> stopped_after() const { return stopped_after_; }

  void on_started(const engine::GenerationStarted& started) override;
  engine::Verdict on_prompt_token(const engine::ScoredToken& token) override;
  engine::Verdict on_token(const engine::GeneratedToken& token) override;
  void on_finished(const engine::GenerationEnd& end) override;

 private:
  // What the next token of a text is, before the decoder is told of it.
  static worker_http::TokenReport report(const tokenizer::StreamingDecoder& decoder,
                                         const engine::TokenLogprob& token,
                                         std::span<const engine::TokenLogprob> top);
  bool report_prompt(const engine::TokenLogprob& token, std::span<const engine::TokenLogprob> top,
                     std::int64_t index);
  tokenizer::StopMatcher::Output add(const engine::TokenLogprob& token,
                                     std::span<const engine::TokenLogprob> top);
  worker_http::TextPiece take_piece(std::string text);
  void read_told();
  bool deliver(worker_http::TextPiece piece);
  void flush_tail();
  Result<contract::InferenceResult> result_of(const engine::GenerationEnd& end) const;
  double since_arrival_ms() const;

  const TextSinkContext context_;
  std::shared_ptr<worker_http::TextListener> listener_;
  std::shared_ptr<JobTable> jobs_;
  JobTable::Use use_ = 0;
  tokenizer::StreamingDecoder decoder_;
  // With score_prompt, until all of the prompt is reported.
  std::optional<tokenizer::StreamingDecoder> prompt_decoder_;
  engine::TokenId first_id_ = 0;  // of the prompt
  tokenizer::StopMatcher matcher_;
  std::vector<worker_http::TokenReport> reports_;  // since the last piece
  std::vector<engine::TokenId> ids_;               // since the last piece
  openai::ToldText told_;                          // until it is handed over
  std::optional<std::size_t> stopped_after_;
  std::string stop_;  // the stop string that came
  double ttft_ms_ = -1;
};

}  // namespace llorch::worker
