// AnswerFold: the chunks of an answer → the whole object, as the worker itself would have answered.
// As long as the answer is: for work threads. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "fleet/records.h"
#include "orchestrator/frames.h"

namespace llorch::orchestrator {

class AnswerFold {
 public:
  // `with_logprobs`: the client asked for them.
  AnswerFold(fleet::JobKind kind, std::uint32_t choices, bool with_logprobs);

  // Events of the stream, whole ones. Corrupt where they are no chunks.
  Status add(std::string_view events);
  json::Object whole() const;

 private:
  struct Call {
    json::Value id;
    json::Value type;
    std::string name;
    std::string arguments;
  };
  struct Choice {
    std::string text;
    std::string reasoning;
    std::vector<Call> calls;
    json::Value logprobs;
    json::Value finish_reason;
  };

  void take_head(const json::Object& chunk);
  Status take_choice(const json::Object& entry);
  static void take_calls(const json::Array& calls, Choice& choice);
  void take_logprobs(const json::Value& logprobs, Choice& choice) const;
  static json::Object message_of(const Choice& choice);

  const bool is_chat_;
  std::vector<Choice> choices_;
  json::Object head_;
  json::Value usage_;
};

}  // namespace llorch::orchestrator
