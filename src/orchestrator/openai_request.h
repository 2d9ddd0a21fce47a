// What the orchestrator reads of a body of OpenAI's endpoints: what it needs to queue, place and
// relay it. Everything else is the worker's to check. Pure; for work threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "fleet/records.h"

namespace llorch::orchestrator {

struct OpenAiRequest {
  std::string model;
  bool stream = false;
  bool include_usage = false;
  bool with_logprobs = false;
  std::uint32_t choices = 1;
  std::uint32_t max_tokens = 0;  // 0: as many as there is room for
  std::optional<std::uint64_t> seed;
  std::string body;    // as JSON is written once: the same request has the same bytes
  std::string prompt;  // what a worker's cache may hold the beginning of, in the order it is read
};

struct OpenAiRefusal {
  Error error;
  std::string param;
};

// A refusal names the field.
std::optional<OpenAiRefusal> read_openai_request(fleet::JobKind kind, const json::Object& body,
                                                 OpenAiRequest& request);

}  // namespace llorch::orchestrator
