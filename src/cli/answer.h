// A worker's answer, read as it comes: to a text that it continues (POST /execute), or to a
// conversation in the form of its model's chat template (POST /v1/chat/completions). Private to
// cli/.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/inference.h"
#include "contract/sampling_config.h"
#include "contract/worker_info.h"

namespace llorch::cli {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// What the worker is asked: a text to continue, or, when there are messages, the next one.
struct Question {
  std::string uri;  // of the worker
  std::string prompt;
  std::vector<ChatMessage> messages;
  contract::SamplingConfig sampling;
  std::stop_token stop;  // ends the answer, and with its connection the worker's work
};

struct Answer {
  std::string text;
  std::string reasoning;  // what a reasoning model thought first
  std::string model;
  std::string stop_reason;  // "max_tokens", "eos", "stop_sequence"; "stop" for one of the last two
  bool is_chat = false;
  // Of a chat the times are those seen from here, and prefill_ms is not known.
  contract::InferenceResult numbers;
};

// Each piece of the answer; false when there is no point in reading on.
using OnAnswerText = std::function<bool(std::string_view text, bool is_reasoning)>;

// Fills `answer` as far as it came. An error says what the worker said; Internal when it broke off
// before the end; Cancelled after a stop.
Status ask_worker(const Question& question, const OnAnswerText& on_text, Answer& answer);

// What the worker says about itself.
Result<contract::HealthReport> read_worker_health(const std::string& uri);

// Whether the error means that the conversation is longer than the model's context.
bool is_context_overflow(const Error& error);

double tokens_per_second(const contract::InferenceResult& result);

}  // namespace llorch::cli
