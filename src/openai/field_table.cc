#include "openai/field_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace llorch::openai {
namespace {

using enum Treatment;

constexpr std::string_view kStringOrStrings =
    R"({"oneOf":[{"type":"string"},{"type":"array","maxItems":4,"items":{"type":"string"}}]})";
constexpr std::string_view kLogitBias =
    R"({"type":"object","maxProperties":1024,"additionalProperties":{"type":"number","minimum":-100,"maximum":100}})";
constexpr std::string_view kChoices = R"({"type":"integer","minimum":1,"maximum":64,"default":1})";
constexpr std::string_view kDescribed = {};  // by settings_schema()
constexpr std::string_view kFlag = R"({"type":"boolean","default":false})";
constexpr std::string_view kString = R"({"type":"string"})";
constexpr std::string_view kSeed =
    R"({"type":"integer","description":"Choice k draws with seed + k."})";
constexpr std::string_view kStreamOptions =
    R"({"type":"object","properties":{"include_usage":{"type":"boolean"},"include_obfuscation":{"type":"boolean"}},"additionalProperties":false})";

constexpr std::string_view kLlorch =
    R"({"type":"object","additionalProperties":false,"properties":{"resume_ids":{"type":"array","items":{"oneOf":[{"type":"array","items":{"type":"integer","minimum":0}},{"type":"integer","minimum":0}]},"description":"The ids that each choice of this very request has produced elsewhere, a list for each; one choice may have its ids without a list around them. With seed. The answer goes on after them."}}})";

// What completions and chat completions have in common.
constexpr std::array kShared = {
    FieldSpec{"model", Honoured, kString},
    FieldSpec{"frequency_penalty", Honoured, kDescribed},
    FieldSpec{"presence_penalty", Honoured, kDescribed},
    FieldSpec{"logit_bias", Honoured, kLogitBias},
    FieldSpec{"n", Honoured, kChoices},
    FieldSpec{"seed", Honoured, kSeed},
    FieldSpec{"stop", Honoured, kStringOrStrings},
    FieldSpec{"stream", Honoured, kFlag},
    FieldSpec{"stream_options", Honoured, kStreamOptions},
    FieldSpec{"temperature", Honoured, kDescribed},
    FieldSpec{"top_p", Honoured, kDescribed},
    FieldSpec{"top_k", Honoured, kDescribed},
    FieldSpec{"min_p", Honoured, kDescribed},
    FieldSpec{"repetition_penalty", Honoured, kDescribed},
    FieldSpec{"llorch", Honoured, kLlorch},
    FieldSpec{"user", Bookkeeping, kString},
};

template <std::size_t N, std::size_t M>
constexpr std::array<FieldSpec, N + M> joined(const std::array<FieldSpec, N>& own,
                                              const std::array<FieldSpec, M>& shared) {
  std::array<FieldSpec, N + M> all{};
  std::copy(own.begin(), own.end(), all.begin());
  std::copy(shared.begin(), shared.end(), all.begin() + N);
  return all;
}

constexpr std::array kCompletion = joined(
    std::array{
        FieldSpec{
            "prompt", Required,
            R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"array","items":{"type":"integer"}},{"type":"array","items":{"type":"array","items":{"type":"integer"}}}]})"},
        FieldSpec{"echo", Honoured, kFlag},
        FieldSpec{"logprobs", Honoured, R"({"type":"integer","minimum":0,"maximum":5})"},
        FieldSpec{
            "max_tokens", Honoured,
            R"({"type":"integer","minimum":0,"default":16,"description":"0 counts the prompt and writes nothing."})"},
        FieldSpec{
            "suffix", Honoured,
            R"({"type":"string","description":"What follows the answer; for models with fill-in-the-middle tokens."})"},
        FieldSpec{"best_of", Refused, R"({"type":"integer"})", "1"},
    },
    kShared);

constexpr std::array kChat = joined(
    std::array{
        FieldSpec{
            "messages", Required,
            R"({"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/ChatMessage"}})"},
        FieldSpec{"logprobs", Honoured, kFlag},
        FieldSpec{"top_logprobs", Honoured, R"({"type":"integer","minimum":0,"maximum":20})"},
        FieldSpec{
            "max_tokens", Honoured,
            R"({"type":"integer","minimum":1,"description":"Default: the rest of the context."})"},
        FieldSpec{"max_completion_tokens", Honoured, R"({"type":"integer","minimum":1})"},
        FieldSpec{
            "response_format", Honoured,
            R"({"type":"object","properties":{"type":{"enum":["text","json_object","json_schema"]},"json_schema":{"type":"object"}},"required":["type"]})"},
        FieldSpec{
            "tools", Honoured,
            R"({"type":"array","maxItems":128,"items":{"type":"object"},"description":"Told to the model by its chat template, or by a system message where that takes none; calls come back as tool_calls."})"},
        FieldSpec{
            "tool_choice", Honoured,
            R"({"oneOf":[{"enum":["auto","none","required"]},{"type":"object"}],"description":"required and a named function are enforced."})"},
        FieldSpec{"parallel_tool_calls", Honoured,
                  R"({"type":"boolean","default":true,"description":"false: at most one call."})"},
        FieldSpec{
            "documents", Honoured,
            R"({"type":"array","maxItems":1024,"items":{"type":"object"},"description":"Handed to the model's chat template."})"},
        FieldSpec{
            "chat_template_kwargs", Honoured,
            R"({"type":"object","description":"Further variables of the model's chat template, such as enable_thinking."})"},
        FieldSpec{"metadata", Bookkeeping, R"({"type":"object"})"},
        FieldSpec{"prediction", Bookkeeping, R"({"type":"object"})"},
        FieldSpec{"prompt_cache_key", Bookkeeping, kString},
        FieldSpec{"prompt_cache_options", Bookkeeping, R"({"type":"object"})"},
        FieldSpec{"prompt_cache_retention", Bookkeeping, kString},
        FieldSpec{"safety_identifier", Bookkeeping, kString},
        FieldSpec{"service_tier", Bookkeeping, kString},
        FieldSpec{"store", Bookkeeping, kFlag},
        FieldSpec{"audio", Refused, R"({"type":"object"})"},
        FieldSpec{"function_call", Refused, {}, R"("none")", "tool_choice"},
        FieldSpec{"functions", Refused, R"({"type":"array"})", "[]", "tools"},
        FieldSpec{"modalities", Refused, R"({"type":"array"})", R"(["text"])"},
        FieldSpec{"moderation", Refused, R"({"type":"object"})"},
        FieldSpec{"reasoning_effort", Refused, kString, R"("medium")"},
        FieldSpec{"verbosity", Refused, kString, R"("medium")"},
        FieldSpec{"web_search_options", Refused, R"({"type":"object"})"},
    },
    kShared);

constexpr std::array kChatMessage = {
    FieldSpec{"role", Required, R"({"enum":["developer","system","user","assistant","tool"]})"},
    FieldSpec{
        "content", Honoured,
        R"({"oneOf":[{"type":"string"},{"type":"null"},{"type":"array","items":{"type":"object","properties":{"type":{"const":"text"},"text":{"type":"string"}},"required":["type","text"]}}]})"},
    FieldSpec{"name", Honoured, kString},
    FieldSpec{"tool_calls", Honoured, R"({"type":"array","items":{"type":"object"}})"},
    FieldSpec{"tool_call_id", Honoured, kString},
    FieldSpec{"reasoning_content", Honoured, kString},
    FieldSpec{"refusal", Bookkeeping, {}},
    FieldSpec{"annotations", Bookkeeping, {}},
    FieldSpec{"audio", Refused, {}},
    FieldSpec{"function_call", Refused, {}, {}, "tool_calls"},
};

constexpr std::array kEmbedding = {
    FieldSpec{
        "input", Required,
        R"({"oneOf":[{"type":"string"},{"type":"array","maxItems":2048,"items":{"type":"string"}},{"type":"array","items":{"type":"integer"}},{"type":"array","maxItems":2048,"items":{"type":"array","items":{"type":"integer"}}}]})"},
    FieldSpec{"model", Honoured, kString},
    FieldSpec{"encoding_format", Honoured, R"({"enum":["float","base64"],"default":"float"})"},
    FieldSpec{"user", Bookkeeping, kString},
    FieldSpec{
        "dimensions", Honoured,
        R"({"type":"integer","minimum":1,"description":"The first so many of each vector, at length 1 again."})"},
};

bool asks_for_nothing(const json::Value& value, std::string_view neutral) {
  if (value.is_null()) return true;
  if (neutral.empty()) return false;
  const Result<json::Value> accepted = json::parse(neutral);
  CHECK(accepted.ok(), "a neutral value that is no JSON");
  return value == *accepted;
}

}  // namespace

std::span<const FieldSpec> completion_fields() {
  return kCompletion;
}
std::span<const FieldSpec> chat_fields() {
  return kChat;
}
std::span<const FieldSpec> chat_message_fields() {
  return kChatMessage;
}
std::span<const FieldSpec> embedding_fields() {
  return kEmbedding;
}

void apply_treatments(std::span<const FieldSpec> fields, const json::Object& object,
                      json::FieldReader& reader) {
  for (const FieldSpec& field : fields) {
    if (field.treatment == Treatment::Bookkeeping) reader.ignore(field.name);
    if (field.treatment != Treatment::Refused) continue;
    reader.ignore(field.name);
    const json::Value* value = object.if_contains(field.name);
    if (value == nullptr || asks_for_nothing(*value, field.neutral)) continue;
    std::string message = "is not supported by this server: ";
    if (!field.instead.empty()) message += fmt::format("{} does the same; ", field.instead);
    message += "leave it out";
    if (!field.neutral.empty()) message += fmt::format(" or send {}", field.neutral);
    reader.fail(field.name, "not supported", std::move(message));
  }
}

}  // namespace llorch::openai
