#include "contract/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "contract/limits.h"
#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

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

// The prompt, as text or as ids.
void read_prompt_ids(json::FieldReader& reader, InferenceRequest& request) {
  request.prompt_ids = take_token_ids(reader, "prompt_ids");
  if (request.prompt_ids && request.prompt_ids->empty())
    reader.fail("prompt_ids", "at least 1 id", "must hold at least one id");
  if (reader.optional_value("prompt") != nullptr) {
    reader.fail("prompt_ids", "not with prompt",
                "cannot be combined with prompt: send the text or its ids");
  }
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

std::optional<std::vector<std::int32_t>> read_resume(json::FieldReader& reader, bool has_seed) {
  const json::Object* resume = reader.optional_object("resume");
  if (resume == nullptr) return std::nullopt;
  json::FieldReader nested(*resume, "resume.");
  std::optional<std::vector<std::int32_t>> ids = take_token_ids(nested, "ids");
  if (nested.optional_value("ids") == nullptr) nested.fail("ids", "required", "is required");
  reader.add(nested.finish());
  if (!has_seed) {
    reader.fail("seed", "required with resume",
                "is required with resume: the answer goes on as the seed it began with has it");
  }
  return ids;
}

constexpr const char* kFewerFailures = "fewer failures";  // the entry for those left out

// What may be shown to the sender, and no more of it than anybody reads.
void trim_errors(std::vector<json::FieldError>& errors) {
  for (json::FieldError& error : errors) {
    const bool is_private = error.field.starts_with("prompt") || error.field.starts_with("stop") ||
                            error.field.starts_with("resume");
    if (is_private) error.value.reset();
  }
  if (errors.size() <= kFieldErrorsMax) return;
  const std::size_t left_out = errors.size() - (kFieldErrorsMax - 1);
  errors.resize(kFieldErrorsMax - 1);
  errors.push_back(
      {"", kFewerFailures, fmt::format("{} more failures are not listed", left_out), {}});
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
  const bool is_cut = errors.back().constraint == kFewerFailures;
  return {ErrorCode::InvalidArgument, fmt::format("the request has {}{} failures: {}",
                                                  is_cut ? "at least " : "", errors.size(), names)};
}

Error reject_body(ErrorCode code, std::string message, std::vector<json::FieldError>& errors) {
  errors.push_back({"request", "JSON object", message, {}});
  return {code, std::move(message)};
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
  if (reader.optional_value("prompt_ids") != nullptr) {
    read_prompt_ids(reader, request);
  } else {
    request.prompt = read_prompt(reader);
  }
  request.sampling = read_sampling(reader);
  request.resume_ids = read_resume(reader, request.sampling.seed.has_value());
  errors = reader.finish();
  if (errors.empty()) return request;
  trim_errors(errors);
  return summary_of(errors);
}

json::Object to_json(const InferenceRequest& request) {
  json::Object object{{"job_id", request.job_id}};
  if (request.prompt_ids) {
    object["prompt_ids"] = json::Array(request.prompt_ids->begin(), request.prompt_ids->end());
  } else {
    object["prompt"] = request.prompt;
  }
  write_sampling(request.sampling, object);
  if (request.resume_ids) {
    json::Array ids(request.resume_ids->begin(), request.resume_ids->end());
    object["resume"] = json::Object{{"ids", std::move(ids)}};
  }
  return object;
}

template <>
json::Object schema_of<InferenceRequest>() {
  SchemaWriter writer(SchemaOf::Request);
  writer("job_id", std::string(),
         {.must = true, .bytes = {1, kJobIdBytesMax}, .pattern = "^[A-Za-z0-9._-]+$"});
  writer("prompt", std::string(), {.bytes = {1, kPromptScalarsMax}});
  const json::Object ids{{"type", "array"},
                         {"items", json::Object{{"type", "integer"}, {"minimum", 0}}}};
  writer.add("prompt_ids", ids, {.doc = "Instead of the prompt: ids as they are, nothing added."});
  add_sampling_schema(writer);
  const json::Object resume{{"type", "object"},
                            {"additionalProperties", false},
                            {"required", json::Array{"ids"}},
                            {"properties", json::Object{{"ids", ids}}}};
  writer.add("resume", resume,
             {.doc = "What this very request has produced elsewhere; with seed. The answer goes on "
                     "after it."});
  json::Object schema = writer.finish();
  schema["oneOf"] = json::Array{json::Object{{"required", json::Array{"prompt"}}},
                                json::Object{{"required", json::Array{"prompt_ids"}}}};
  return schema;
}

std::string_view name(StopReason reason) {
  return kStopReasonNames[static_cast<std::size_t>(reason)];
}

template <class V, Described<StartedEvent> T>
void describe(V& v, T& event) {
  v("job_id", event.job_id, {.must = true});
  v("model", event.model, {.must = true});
  v("started_at", event.started_at, {.must = true});
  v("seed", event.seed);
  v("prompt_tokens", event.prompt_tokens, {.min = 0});
  v("cached_tokens", event.cached_tokens, {.min = 0});
  v("queue_ms", event.queue_ms, {.min = 0, .thousandths = true});
}

template <class V, Described<TokenEvent> T>
void describe(V& v, T& event) {
  v("t", event.text, {.must = true});
  v("i", event.index, {.must = true, .min = 0});
  v("ids", event.ids, {.omit_empty = true, .doc = "All ids since the event before."});
}

template <class V, Described<InferenceResult> T>
void describe(V& v, T& result) {
  v("tokens_out", result.tokens_out, {.must = true, .min = 0});
  v("decode_time_ms", result.decode_time_ms, {.must = true, .min = 0});
  v("stop_reason", result.stop_reason, {.must = true, .names = kStopReasonNames});
  v("stop_sequence_matched", result.stop_sequence_matched, {.null_when_absent = true});
  v("prompt_tokens", result.prompt_tokens, {.min = 0});
  v("prefill_ms", result.prefill_ms, {.min = 0, .thousandths = true});
  v("ttft_ms", result.ttft_ms, {.min = 0, .thousandths = true});
  v("seed", result.seed);
  v("ids", result.ids, {.omit_empty = true, .doc = "Those that no token event had."});
}

json::Object started_event_json(const StartedEvent& event) {
  return write_fields(event);
}
Result<StartedEvent> parse_started_event(std::string_view data) {
  return parse_peer<StartedEvent>("started event", data);
}
json::Object token_event_json(const TokenEvent& event) {
  return write_fields(event);
}
Result<TokenEvent> parse_token_event(std::string_view data) {
  return parse_peer<TokenEvent>("token event", data);
}
json::Object end_event_json(const InferenceResult& result) {
  return write_fields(result);
}
Result<InferenceResult> parse_end_event(std::string_view data) {
  return parse_peer<InferenceResult>("end event", data);
}

template <>
json::Object schema_of<StartedEvent>() {
  return described_schema<StartedEvent>(SchemaOf::Answer);
}
template <>
json::Object schema_of<TokenEvent>() {
  return described_schema<TokenEvent>(SchemaOf::Answer);
}
template <>
json::Object schema_of<InferenceResult>() {
  return described_schema<InferenceResult>(SchemaOf::Answer);
}

}  // namespace llorch::contract
