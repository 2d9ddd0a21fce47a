// An answer as its events say it: of POST /execute, or the chunks of POST /v1/chat/completions or
// /v1/completions.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "http/sse.h"
#include "pool_client/ask_worker.h"

namespace llorch::pool_client {

// The body that asks it, and into `answer` what is known before anything has come: whether it is a
// chat, and its seed.
json::Object question_body(const Question& question, Answer& answer);

// Folds events into the answer. One thread.
class AnswerReader {
 public:
  // All three outlive it. The answer is one that question_body has begun.
  AnswerReader(const Question& question, const OnAnswerText& on_text, Answer& answer)
      : question_(question), on_text_(on_text), answer_(answer) {}

  // False when there is no point in reading on: error() says why. Events that are nobody's are
  // passed over. Of several choices the first is told as it comes, the others are only kept.
  bool take(const http::SseEvent& event);

  const std::optional<Error>& error() const { return error_; }
  bool is_complete() const { return is_complete_; }

 private:
  bool fail(Error error);
  bool add_text(std::string_view text, bool is_reasoning);
  bool take_event(const http::SseEvent& event);
  bool take_chunk(std::string_view data);
  bool take_choice(const json::Value& choice);
  std::string stop_reason_of(const std::string& finish_reason) const;

  const Question& question_;
  const OnAnswerText& on_text_;
  Answer& answer_;
  const std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> first_text_;
  std::optional<Error> error_;
  bool is_complete_ = false;
};

// The error in OpenAI's shape, {"message",…,"code"}.
Error read_openai_error(const json::Value& error);

}  // namespace llorch::pool_client
