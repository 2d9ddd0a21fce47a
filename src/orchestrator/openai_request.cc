#include "orchestrator/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fleet/ids.h"
#include "openai/defaults.h"
#include "openai/request.h"

namespace llorch::orchestrator {
namespace {

using fleet::JobKind;

OpenAiRefusal refuse(std::string_view field, std::string_view expected, const json::Value& found) {
  return {{ErrorCode::InvalidArgument,
           fmt::format("{} must be {}, not {}", field, expected, json::kind_name(found))},
          std::string(field)};
}

// The member, unless it is absent or null.
const json::Value* find(const json::Object& body, std::string_view name) {
  const json::Value* value = body.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<OpenAiRefusal> read_bool(const json::Object& body, std::string_view name,
                                       bool& into) {
  const json::Value* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return refuse(name, "true or false", *value);
  into = value->get_bool();
  return std::nullopt;
}

// A count that the worker will check; here it must only not mislead us.
std::uint32_t count_of(const json::Object& body, std::string_view name, std::uint32_t otherwise) {
  const json::Value* value = find(body, name);
  const std::int64_t* count = value == nullptr ? nullptr : value->if_int64();
  if (count == nullptr || *count < 0) return otherwise;
  return static_cast<std::uint32_t>(std::min<std::int64_t>(*count, UINT32_MAX));
}

// Several prompts in one body are several answers; a list of numbers is one prompt.
std::size_t num_prompts(const json::Object& body) {
  const json::Value* prompt = find(body, "prompt");
  if (prompt == nullptr || !prompt->is_array() || prompt->get_array().empty()) return 1;
  const json::Array& list = prompt->get_array();
  return list.front().is_number() ? 1 : list.size();
}

// As a worker says it.
std::string too_many_choices(const json::Object& body, std::size_t choices) {
  const json::Value* n = find(body, "n");
  const std::int64_t* count = n == nullptr ? nullptr : n->if_int64();
  if (count != nullptr && *count > static_cast<std::int64_t>(openai::kChoicesMax))
    return fmt::format("n must be an integer in 1..{}, is {}", openai::kChoicesMax, *count);
  return "n " + openai::tell_too_many_choices(choices, openai::kChoicesMax);
}

std::optional<OpenAiRefusal> read_stream_fields(const json::Object& body, OpenAiRequest& request) {
  if (auto refusal = read_bool(body, "stream", request.stream)) return refusal;
  if (const json::Value* seed = find(body, "seed")) {
    if (!seed->is_int64()) return refuse("seed", "a whole number", *seed);
    request.seed = static_cast<std::uint64_t>(seed->get_int64());
  }
  const json::Value* options = find(body, "stream_options");
  if (options == nullptr) return std::nullopt;
  if (!options->is_object()) return refuse("stream_options", "an object", *options);
  if (!request.stream) {
    return OpenAiRefusal{
        {ErrorCode::InvalidArgument, "stream_options is only allowed with stream: true"},
        "stream_options"};
  }
  for (const auto& [name, value] : options->get_object()) {
    const bool is_known = name == "include_usage" || name == "include_obfuscation";
    if (is_known) continue;
    return OpenAiRefusal{
        {ErrorCode::InvalidArgument, fmt::format("stream_options.{} is unknown", json::view(name))},
        "stream_options"};
  }
  return read_bool(options->get_object(), "include_usage", request.include_usage);
}

}  // namespace

std::optional<OpenAiRefusal> read_openai_request(JobKind kind, const json::Object& body,
                                                 OpenAiRequest& request) {
  const json::Value* model = find(body, "model");
  if (model == nullptr) {
    return OpenAiRefusal{
        {ErrorCode::InvalidArgument, "model is required: GET /v1/models lists the names"}, "model"};
  }
  if (!model->is_string()) return refuse("model", "a string", *model);
  request.model = json::view(model->get_string());
  if (find(body, "llorch") != nullptr) {
    return OpenAiRefusal{{ErrorCode::InvalidArgument,
                          "llorch is what an orchestrator tells its workers; leave it out"},
                         "llorch"};
  }
  if (kind != JobKind::Embedding) {
    if (auto refusal = read_stream_fields(body, request)) return refusal;
    const std::size_t choices = std::max(1U, count_of(body, "n", 1)) *
                                (kind == JobKind::Completion ? num_prompts(body) : std::size_t{1});
    if (choices > openai::kChoicesMax)
      return OpenAiRefusal{{ErrorCode::InvalidArgument, too_many_choices(body, choices)}, "n"};
    request.choices = static_cast<std::uint32_t>(choices);
    const std::uint32_t usual =
        kind == JobKind::Completion ? std::uint32_t{openai::kCompletionMaxTokens} : 0;
    request.max_tokens =
        count_of(body, "max_completion_tokens", count_of(body, "max_tokens", usual));
    const json::Value* logprobs = find(body, "logprobs");
    request.with_logprobs =
        logprobs != nullptr && (logprobs->is_bool() ? logprobs->get_bool() : true);
  }
  for (const std::string_view name : {"tools", "messages", "prompt", "input"})
    if (const json::Value* part = find(body, name)) request.prompt += json::serialize(*part);
  request.body = json::serialize(body);
  return std::nullopt;
}

}  // namespace llorch::orchestrator
