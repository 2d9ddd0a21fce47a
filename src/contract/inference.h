// One inference on the wire: the request of POST /execute, the events of its stream, its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/fields.h"
#include "contract/sampling_config.h"

namespace llorch::contract {

struct InferenceRequest {
  std::string job_id;
  std::string prompt;  // valid UTF-8
  SamplingConfig sampling;
  std::optional<std::vector<std::int32_t>> prompt_ids = {};  // instead of the prompt
  // What this very request has produced elsewhere, in order; with sampling.seed.
  std::optional<std::vector<std::int32_t>> resume_ids = {};

  friend bool operator==(const InferenceRequest&, const InferenceRequest&) = default;
};

// 1..256 of [A-Za-z0-9._-].
bool is_valid_job_id(std::string_view text);

// The body of POST /execute. Every failure is in `errors` (which is emptied first), for
// render_error; the Error says them in one sentence. Neither ever repeats text of the prompt or of
// a stop string, nor ids. TooLarge above kRequestBodyBytesMax, otherwise InvalidArgument. Whether
// the prompt fits the context is the worker's question.
Result<InferenceRequest> parse_inference_request(std::string_view body,
                                                 std::vector<json::FieldError>& errors);

// The same request as JSON, defaults written out.
json::Object to_json(const InferenceRequest& request);
template <>
json::Object schema_of<InferenceRequest>();

enum class StopReason : std::uint8_t { MaxTokens, Eos, StopSequence, Cancelled };

std::string_view name(StopReason reason);  // "max_tokens", "eos", "stop_sequence", "cancelled"

// First event of a stream.
struct StartedEvent {
  std::string job_id;
  std::string model;
  std::string started_at;  // RFC 3339
  std::uint64_t seed = 0;  // the one really used
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  double queue_ms = 0;

  friend bool operator==(const StartedEvent&, const StartedEvent&) = default;
};

// A piece of text. Tokens that complete no character, or that may begin a stop string, make no
// event.
struct TokenEvent {
  std::string text;        // "t": whole valid UTF-8
  std::int64_t index = 0;  // "i": contiguous from 0
  // All ids since the event before. None with text that was held back until the end: its ids come
  // with the end event, because only the two together can be gone on from.
  std::vector<std::int32_t> ids = {};

  friend bool operator==(const TokenEvent&, const TokenEvent&) = default;
};

// What came out. Cancelled keeps what there was until then; on the wire that is an `error` event
// CANCELLED.
struct InferenceResult {
  std::string text;  // not on the wire: the token events were it
  std::int64_t tokens_out = 0;
  std::int64_t decode_time_ms = 0;
  StopReason stop_reason = StopReason::MaxTokens;
  std::optional<std::string> stop_sequence_matched;  // with StopReason::StopSequence only
  std::int64_t prompt_tokens = 0;
  double prefill_ms = 0;
  double ttft_ms = 0;  // from the request's arrival to the first token event
  std::uint64_t seed = 0;
  std::vector<std::int32_t> ids;  // those that no token event had

  friend bool operator==(const InferenceResult&, const InferenceResult&) = default;
};

// The data of each event, both ways; for `error` see error_table.h. A parser accepts fields it does
// not know and does without those the contract calls "plus"; data that breaks the contract is
// Internal: a peer's fault. Times in fractional milliseconds are written to the microsecond.
json::Object started_event_json(const StartedEvent& event);
Result<StartedEvent> parse_started_event(std::string_view data);
json::Object token_event_json(const TokenEvent& event);
Result<TokenEvent> parse_token_event(std::string_view data);
json::Object end_event_json(const InferenceResult& result);
Result<InferenceResult> parse_end_event(std::string_view data);
template <>
json::Object schema_of<StartedEvent>();
template <>
json::Object schema_of<TokenEvent>();
template <>
json::Object schema_of<InferenceResult>();  // of the end event

}  // namespace llorch::contract
