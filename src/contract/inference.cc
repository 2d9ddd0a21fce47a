#include "contract/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "contract/limits.h"
#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

bool is_job_id_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// A required string whose own rules the caller checks: nothing when it is missing or no string,
// which is reported.
std::optional<std::string> take_text(json::FieldReader& reader, std::string_view field) {
  if (reader.optional_value(field) == nullptr) {
    reader.fail(field, "required", "is required");
    return std::nullopt;
  }
  return reader.optional_string(field);
}

std::string read_job_id(json::FieldReader& reader) {
  std::optional<std::string> job_id = take_text(reader, "job_id");
  if (!job_id) return {};
  if (job_id->empty() || job_id->size() > kJobIdBytesMax) {
    reader.fail(
        "job_id", fmt::format("1..{} bytes", kJobIdBytesMax),
        fmt::format("must have 1..{} characters, has {} bytes", kJobIdBytesMax, job_id->size()));
  } else if (!is_valid_job_id(*job_id)) {
    reader.fail("job_id", "[A-Za-z0-9._-]", "may hold only letters, digits, '.', '_' and '-'");
  }
  return std::move(*job_id);
}

std::string read_prompt(json::FieldReader& reader) {
  std::optional<std::string> prompt = take_text(reader, "prompt");
  if (!prompt) return {};
  const std::size_t scalars = base::count_scalars(*prompt);
  if (scalars == 0 || scalars > kPromptScalarsMax) {
    reader.fail(
        "prompt", fmt::format("1..{} characters", kPromptScalarsMax),
        fmt::format("must have 1..{} Unicode scalar values, has {}", kPromptScalarsMax, scalars));
  }
  return std::move(*prompt);
}

// What may be shown to the sender, and no more of it than anybody reads.
void trim_errors(std::vector<json::FieldError>& errors) {
  for (json::FieldError& error : errors) {
    if (error.field == "prompt" || error.field.starts_with("stop")) error.value.reset();
  }
  if (errors.size() <= kFieldErrorsMax) return;
  const std::size_t left_out = errors.size() - (kFieldErrorsMax - 1);
  errors.resize(kFieldErrorsMax - 1);
  errors.push_back(
      {"", "fewer failures", fmt::format("{} more failures are not listed", left_out), {}});
}

Error summary_of(const std::vector<json::FieldError>& errors) {
  if (errors.size() == 1) {
    return {ErrorCode::InvalidArgument, fmt::format("{} {}", errors[0].field, errors[0].message)};
  }
  constexpr std::size_t kNamedMax = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(errors.size(), kNamedMax); ++i) {
    fmt::format_to(std::back_inserter(names), "{}{}", i == 0 ? "" : ", ", errors[i].field);
  }
  if (errors.size() > kNamedMax) names += ", …";
  return {ErrorCode::InvalidArgument,
          fmt::format("the request has {} failures: {}", errors.size(), names)};
}

Error reject_body(ErrorCode code, std::string message, std::vector<json::FieldError>& errors) {
  errors.push_back({"body", "JSON object", message, {}});
  return {code, std::move(message)};
}

double to_microsecond(double ms) {
  return std::round(ms * 1000) / 1000;
}

std::int64_t optional_count(json::FieldReader& reader, std::string_view field) {
  return reader.optional_integer(field, 0, kInt64Max).value_or(0);
}

double optional_ms(json::FieldReader& reader, std::string_view field) {
  return reader.optional_number(field, {.min = 0}).value_or(0);
}

constexpr std::array<std::string_view, 4> kStopReasonNames = {"max_tokens", "eos", "stop_sequence",
                                                              "cancelled"};

}  // namespace

bool is_valid_job_id(std::string_view text) {
  return !text.empty() && text.size() <= kJobIdBytesMax &&
         std::all_of(text.begin(), text.end(), is_job_id_char);
}

Result<InferenceRequest> parse_inference_request(std::string_view body,
                                                 std::vector<json::FieldError>& errors) {
  errors.clear();
  Result<json::Value> parsed = json::parse(body, {.max_bytes = kRequestBodyBytesMax});
  if (!parsed.ok()) return reject_body(parsed.error().code, parsed.error().message, errors);
  const json::Object* object = parsed->if_object();
  if (object == nullptr) {
    return reject_body(
        ErrorCode::InvalidArgument,
        fmt::format("the body must be a JSON object, not {}", json::kind_name(parsed.value())),
        errors);
  }
  json::FieldReader reader(*object);
  InferenceRequest request;
  request.job_id = read_job_id(reader);
  request.prompt = read_prompt(reader);
  request.sampling = read_sampling(reader);
  errors = reader.finish();
  if (errors.empty()) return request;
  trim_errors(errors);
  return summary_of(errors);
}

json::Object to_json(const InferenceRequest& request) {
  json::Object object{{"job_id", request.job_id}, {"prompt", request.prompt}};
  write_sampling(request.sampling, object);
  return object;
}

std::string_view name(StopReason reason) {
  return kStopReasonNames[static_cast<std::size_t>(reason)];
}

std::optional<StopReason> stop_reason_from_name(std::string_view text) {
  const auto* found = std::find(kStopReasonNames.begin(), kStopReasonNames.end(), text);
  if (found == kStopReasonNames.end()) return std::nullopt;
  return static_cast<StopReason>(found - kStopReasonNames.begin());
}

json::Object started_event_json(const StartedEvent& event) {
  return {{"job_id", event.job_id},
          {"model", base::to_valid_utf8(event.model)},
          {"started_at", event.started_at},
          {"seed", event.seed},
          {"prompt_tokens", event.prompt_tokens},
          {"cached_tokens", event.cached_tokens},
          {"queue_ms", to_microsecond(event.queue_ms)}};
}

Result<StartedEvent> parse_started_event(std::string_view data) {
  Result<json::Object> object = parse_peer_object("started event", data);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  StartedEvent event;
  event.job_id = reader.required_string("job_id");
  event.model = reader.required_string("model");
  event.started_at = reader.required_string("started_at");
  event.seed = reader.optional_unsigned("seed").value_or(0);
  event.prompt_tokens = optional_count(reader, "prompt_tokens");
  event.cached_tokens = optional_count(reader, "cached_tokens");
  event.queue_ms = optional_ms(reader, "queue_ms");
  if (Status sound = check_peer_object("started event", reader, object.value()); !sound.ok())
    return sound.error();
  return event;
}

json::Object token_event_json(const TokenEvent& event) {
  return {{"t", event.text}, {"i", event.index}};
}

Result<TokenEvent> parse_token_event(std::string_view data) {
  Result<json::Object> object = parse_peer_object("token event", data);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  TokenEvent event{reader.required_string("t"), reader.required_integer("i", 0, kInt64Max)};
  if (Status sound = check_peer_object("token event", reader, object.value()); !sound.ok())
    return sound.error();
  return event;
}

json::Object end_event_json(const InferenceResult& result) {
  json::Object object{{"tokens_out", result.tokens_out},
                      {"decode_time_ms", result.decode_time_ms},
                      {"stop_reason", name(result.stop_reason)},
                      {"stop_sequence_matched", nullptr},
                      {"prompt_tokens", result.prompt_tokens},
                      {"prefill_ms", to_microsecond(result.prefill_ms)},
                      {"ttft_ms", to_microsecond(result.ttft_ms)},
                      {"seed", result.seed}};
  if (result.stop_sequence_matched) object["stop_sequence_matched"] = *result.stop_sequence_matched;
  return object;
}

Result<InferenceResult> parse_end_event(std::string_view data) {
  Result<json::Object> object = parse_peer_object("end event", data);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  InferenceResult result;
  result.tokens_out = reader.required_integer("tokens_out", 0, kInt64Max);
  result.decode_time_ms = reader.required_integer("decode_time_ms", 0, kInt64Max);
  const std::optional<std::string> reason = take_text(reader, "stop_reason");
  if (reason) {
    const std::optional<StopReason> known = stop_reason_from_name(*reason);
    if (!known) reader.fail("stop_reason", "stop reason", fmt::format("is unknown: '{}'", *reason));
    result.stop_reason = known.value_or(StopReason::MaxTokens);
  }
  result.stop_sequence_matched = reader.optional_string("stop_sequence_matched");
  result.prompt_tokens = optional_count(reader, "prompt_tokens");
  result.prefill_ms = optional_ms(reader, "prefill_ms");
  result.ttft_ms = optional_ms(reader, "ttft_ms");
  result.seed = reader.optional_unsigned("seed").value_or(0);
  if (Status sound = check_peer_object("end event", reader, object.value()); !sound.ok())
    return sound.error();
  return result;
}

}  // namespace llorch::contract
