// A worker's answer, read as it comes: to a text that it continues (POST /execute), or to a
// conversation in the form of its model's chat template (POST /v1/chat/completions).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/inference.h"
#include "contract/sampling_config.h"
#include "contract/worker_info.h"
#include "pool_client/pool_client.h"

namespace llorch::pool_client {

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
  std::string job_id;  // of a text to continue
};

struct Answer {
  std::string text;
  std::vector<std::string> others;  // texts of further choices, where several were asked for
  std::string reasoning;            // what a reasoning model thought first
  std::string model;
  std::string stop_reason;  // "max_tokens", "eos", "stop_sequence"; "stop" for one of the last two
  bool is_chat = false;
  // Of a chat the times are those seen from here, and prefill_ms is not known.
  contract::InferenceResult numbers;
};

// Each piece of the answer; false when there is no point in reading on.
using OnAnswerText = std::function<bool(std::string_view text, bool is_reasoning)>;

// Fills `answer` as far as it came. An error says what the worker said; Internal when it broke off
// before the end; Cancelled after a stop, which ends the worker's work with the connection, and
// when `on_text` wants no more.
Status ask_worker(const Question& question, const OnAnswerText& on_text, const CallLimits& limits,
                  Answer& answer);

// What the worker says about itself.
Result<contract::HealthReport> read_worker_health(const std::string& uri,
                                                  const CallLimits& limits = {
                                                      .total = std::chrono::seconds(5)});

// Whether the error means that the conversation is longer than the model's context.
bool is_context_overflow(const Error& error);

}  // namespace llorch::pool_client
