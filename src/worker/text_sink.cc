#include "worker/text_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/timestamp.h"
#include "base/utf8.h"

namespace llorch::worker {
TextSink::TextSink(TextSinkContext context, const tokenizer::Tokenizer& tokenizer,
                   std::span<const engine::TokenId> prompt,
                   std::shared_ptr<worker_http::TextListener> listener)
    : context_(std::move(context)),
      listener_(std::move(listener)),
      decoder_(tokenizer, {}, prompt),
      matcher_(context_.stop) {
  read_told();
  if (!context_.score_prompt) return;
  prompt_decoder_.emplace(tokenizer,
                          tokenizer::DecodeOptions{.keep_special = context_.prompt_shows_special});
  first_id_ = prompt.front();
}

void TextSink::set_job(std::shared_ptr<JobTable> jobs, JobTable::Use use) {
  jobs_ = std::move(jobs);
  use_ = use;
}

double TextSink::since_arrival_ms() const {
  return std::chrono::duration<double, std::milli>(engine::Clock::now() - context_.arrived).count();
}

void TextSink::on_started(const engine::GenerationStarted& started) {
  contract::StartedEvent event;
  event.job_id = context_.job_id;
  event.model = context_.model;
  event.started_at = base::to_rfc3339(std::chrono::system_clock::now());
  event.seed = context_.seed;
  event.prompt_tokens = context_.prompt_tokens;
  event.cached_tokens = started.cached_tokens;
  event.queue_ms = started.queue_ms;
  listener_->on_started(event);
  if (!context_.told.empty()) listener_->on_told(std::move(told_));
  if (prompt_decoder_) report_prompt({.id = first_id_}, {}, 0);
}

worker_http::TokenReport TextSink::report(const tokenizer::StreamingDecoder& decoder,
                                          const engine::TokenLogprob& token,
                                          std::span<const engine::TokenLogprob> top) {
  // Rows beyond the tokenizer's vocabulary are padding of the model's, and empty.
  const auto describe = [&](const engine::TokenLogprob& one) {
    std::string bytes = decoder.bytes_of(one.id);
    std::string text = base::to_valid_utf8(bytes);
    return worker_http::TokenProbability{std::move(text), std::move(bytes), one.logprob};
  };
  worker_http::TokenReport report;
  report.token = describe(token);
  for (const engine::TokenLogprob& other : top) report.top.push_back(describe(other));
  return report;
}

// Many tokens make a piece, so that a long prompt neither waits here nor floods the reader.
bool TextSink::report_prompt(const engine::TokenLogprob& token,
                             std::span<const engine::TokenLogprob> top, std::int64_t index) {
  constexpr std::size_t kReportsPerPiece = 64;
  reports_.push_back(report(*prompt_decoder_, token, top));
  reports_.back().chars = base::count_scalars(prompt_decoder_->decode_next(token.id));
  reports_.back().is_unscored = index == 0;
  const bool is_last = index + 1 == context_.prompt_tokens;
  if (!is_last && reports_.size() < kReportsPerPiece) return true;
  if (is_last) prompt_decoder_.reset();
  worker_http::TextPiece piece;
  piece.tokens = std::exchange(reports_, {});
  piece.is_prompt = true;
  return listener_->on_text(std::move(piece));
}

engine::Verdict TextSink::on_prompt_token(const engine::ScoredToken& token) {
  return report_prompt({token.id, token.logprob}, token.top, token.index)
             ? engine::Verdict::Continue
             : engine::Verdict::Cancel;
}

worker_http::TextPiece TextSink::take_piece(std::string text) {
  return {.text = std::move(text),
          .tokens = std::exchange(reports_, {}),
          .ids = std::exchange(ids_, {})};
}

bool TextSink::deliver(worker_http::TextPiece piece) {
  if (ttft_ms_ < 0) ttft_ms_ = since_arrival_ms();
  return listener_->on_text(std::move(piece));
}

// The text that is certain with this token.
tokenizer::StopMatcher::Output TextSink::add(const engine::TokenLogprob& token,
                                             std::span<const engine::TokenLogprob> top) {
  if (context_.with_logprobs) reports_.push_back(report(decoder_, token, top));
  ids_.push_back(token.id);
  const bool is_marker =
      std::binary_search(context_.markers.begin(), context_.markers.end(), token.id);
  const std::string text = decoder_.decode_next(token.id, is_marker);
  if (context_.with_logprobs) reports_.back().chars = base::count_scalars(text);
  tokenizer::StopMatcher::Output out = matcher_.add(text);
  if (out.is_stopped) stop_ = out.stop;
  return out;
}

// Through the very steps by which it was made, so that decoder and matcher are where they were.
void TextSink::read_told() {
  for (std::size_t i = 0; i < context_.told.size() && !stopped_after_; ++i) {
    tokenizer::StopMatcher::Output out = add({.id = context_.told[i]}, {});
    if (!out.text.empty()) told_.pieces.push_back(take_piece(std::move(out.text)));
    if (out.is_stopped) stopped_after_ = i + 1;
  }
  // Ids that made no text yet were told all the same.
  if (!ids_.empty()) told_.pieces.push_back(take_piece(""));
}

engine::Verdict TextSink::on_token(const engine::GeneratedToken& token) {
  tokenizer::StopMatcher::Output out = add({token.id, token.logprob}, token.top);
  if (!out.text.empty() && !deliver(take_piece(std::move(out.text))))
    return engine::Verdict::Cancel;
  return out.is_stopped ? engine::Verdict::Stop : engine::Verdict::Continue;
}

// What was held back is text once nothing more comes.
void TextSink::flush_tail() {
  tokenizer::StopMatcher::Output out = matcher_.add(decoder_.flush());
  if (out.is_stopped) stop_ = std::move(out.stop);
  std::string text = std::move(out.text);
  if (!out.is_stopped) text += matcher_.flush();
  if (text.empty() && reports_.empty()) return;
  worker_http::TextPiece tail = take_piece(std::move(text));
  tail.is_tail = true;
  deliver(std::move(tail));
}

void TextSink::on_finished(const engine::GenerationEnd& end) {
  const bool came_to_its_end =
      end.reason == engine::FinishReason::MaxTokens || end.reason == engine::FinishReason::EndToken;
  if (came_to_its_end) flush_tail();
  if (jobs_ != nullptr) jobs_->end(use_);
  Result<contract::InferenceResult> result = result_of(end);
  if (result.ok()) result->ids = std::move(ids_);
  listener_->on_end(std::move(result));
  listener_.reset();
}

Result<contract::InferenceResult> TextSink::result_of(const engine::GenerationEnd& end) const {
  contract::InferenceResult result;
  switch (end.reason) {
    case engine::FinishReason::Cancelled:
      return end.error.value_or(Error{ErrorCode::Cancelled, "the job was cancelled"});
    case engine::FinishReason::TimedOut:
      return Error{ErrorCode::DeadlineExceeded,
                   fmt::format("the deadline passed after {} tokens", end.tokens_out)};
    case engine::FinishReason::Failed:
      return end.error.value_or(Error{ErrorCode::Internal, "the generation failed"});
    case engine::FinishReason::MaxTokens:
      result.stop_reason = contract::StopReason::MaxTokens;
      break;
    case engine::FinishReason::EndToken:
      result.stop_reason = contract::StopReason::Eos;
      break;
    case engine::FinishReason::Stopped:
      break;
  }
  if (!stop_.empty()) {
    result.stop_reason = contract::StopReason::StopSequence;
    result.stop_sequence_matched = stop_;
  }
  result.tokens_out = end.tokens_out;
  result.prompt_tokens = end.prompt_tokens;
  result.decode_time_ms = std::llround(end.decode_ms);
  result.prefill_ms = end.prefill_ms;
  result.ttft_ms = ttft_ms_ < 0 ? since_arrival_ms() : ttft_ms_;
  result.seed = context_.seed;
  return result;
}

}  // namespace llorch::worker
