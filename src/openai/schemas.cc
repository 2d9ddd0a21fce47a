#include "openai/schemas.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "openai/field_table.h"
#include "openai/request.h"

namespace llorch::openai {
namespace {

struct Named {
  std::string_view name;
  std::string_view schema;  // JSON
};

constexpr std::array kAnswers = {
    Named{
        "OpenAiError",
        R"({"type":"object","required":["error"],"additionalProperties":false,"properties":{"error":{"type":"object",
"required":["message","type","param","code"],"additionalProperties":false,"properties":{"message":{"type":"string"},
"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})"},
    Named{
        "Model",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","owned_by"],"properties":{
"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"}}})"},
    Named{
        "ModelList",
        R"({"type":"object","additionalProperties":false,"required":["object","data"],"properties":{"object":{"const":"list"},
"data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})"},
    Named{
        "Usage",
        R"({"type":"object","additionalProperties":false,"required":["prompt_tokens","completion_tokens","total_tokens",
"prompt_tokens_details"],"properties":{"prompt_tokens":{"type":"integer"},"completion_tokens":{"type":"integer"},
"total_tokens":{"type":"integer"},"prompt_tokens_details":{"type":"object","additionalProperties":false,
"required":["cached_tokens"],"properties":{"cached_tokens":{"type":"integer"}}}}})"},
    Named{
        "CompletionLogprobs",
        R"({"type":["object","null"],"additionalProperties":false,"required":["tokens","token_logprobs","top_logprobs",
"text_offset"],"properties":{"tokens":{"type":"array","items":{"type":"string"}},"token_logprobs":{"type":"array",
"items":{"type":["number","null"]}},"top_logprobs":{"type":"array","items":{"type":["object","null"],"additionalProperties":{"type":"number"}}},
"text_offset":{"type":"array","items":{"type":"integer"}}}})"},
    Named{
        "TokenLogprob",
        R"({"type":"object","additionalProperties":false,"required":["token","logprob","bytes"],"properties":{
"token":{"type":"string"},"logprob":{"type":"number"},"bytes":{"type":"array","items":{"type":"integer"}},
"top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}})"},
    Named{
        "ChatLogprobs",
        R"({"type":["object","null"],"additionalProperties":false,"required":["content","refusal"],"properties":{
"content":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}},"refusal":{"type":"null"}}})"},
    Named{
        "ChunkIds",
        R"({"type":"object","additionalProperties":false,"required":["ids"],"description":"With X-Llorch-Ids: 1: all ids of the choice since its chunk before that had any.",
"properties":{"ids":{"type":"array","items":{"type":"integer"}}}})"},
    Named{
        "Completion",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","model","choices"],"properties":{
"id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},
"system_fingerprint":{"type":"string"},"choices":{"type":"array","items":{"type":"object","additionalProperties":false,
"required":["index","text","logprobs","finish_reason"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},
"logprobs":{"$ref":"#/components/schemas/CompletionLogprobs"},"finish_reason":{"enum":["stop","length",null]}}}},
"usage":{"oneOf":[{"type":"null"},{"$ref":"#/components/schemas/Usage"}]},"llorch":{"$ref":"#/components/schemas/ChunkIds"}}})"},
    Named{
        "ChatCompletion",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","model","choices","usage"],
"properties":{"id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},
"model":{"type":"string"},"system_fingerprint":{"type":"string"},"choices":{"type":"array","items":{"type":"object",
"additionalProperties":false,"required":["index","message","logprobs","finish_reason"],"properties":{"index":{"type":"integer"},
"message":{"type":"object","additionalProperties":false,"required":["role","content","refusal"],"properties":{
"role":{"const":"assistant"},"content":{"type":["string","null"]},"refusal":{"type":"null"},"reasoning_content":{"type":"string"},
"tool_calls":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["id","type","function"],"properties":{
"id":{"type":"string"},"type":{"const":"function"},"function":{"type":"object","additionalProperties":false,
"required":["name","arguments"],"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}}}}},
"logprobs":{"$ref":"#/components/schemas/ChatLogprobs"},"finish_reason":{"enum":["stop","length","tool_calls"]}}}},
"usage":{"$ref":"#/components/schemas/Usage"}}})"},
    Named{
        "ChatCompletionChunk",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","model","choices"],"properties":{
"id":{"type":"string"},"object":{"const":"chat.completion.chunk"},"created":{"type":"integer"},"model":{"type":"string"},
"system_fingerprint":{"type":"string"},"choices":{"type":"array","items":{"type":"object","additionalProperties":false,
"required":["index","delta","finish_reason"],"properties":{"index":{"type":"integer"},"delta":{"type":"object",
"additionalProperties":false,"properties":{"role":{"const":"assistant"},"content":{"type":"string"},
"refusal":{"type":"null"},"reasoning_content":{"type":"string"},"tool_calls":{"type":"array","items":{"type":"object",
"additionalProperties":false,"required":["index","function"],"properties":{"index":{"type":"integer"},"id":{"type":"string"},
"type":{"const":"function"},"function":{"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},
"arguments":{"type":"string"}}}}}}}},"logprobs":{"$ref":"#/components/schemas/ChatLogprobs"},
"finish_reason":{"enum":["stop","length","tool_calls",null]}}}},"usage":{"oneOf":[{"type":"null"},{"$ref":"#/components/schemas/Usage"}]},"llorch":{"$ref":"#/components/schemas/ChunkIds"}}})"},
    Named{
        "EmbeddingList",
        R"({"type":"object","additionalProperties":false,"required":["object","data","model","usage"],"properties":{
"object":{"const":"list"},"model":{"type":"string"},"data":{"type":"array","items":{"type":"object",
"additionalProperties":false,"required":["object","index","embedding"],"properties":{"object":{"const":"embedding"},
"index":{"type":"integer"},"embedding":{"oneOf":[{"type":"array","items":{"type":"number"}},{"type":"string"}]}}}},
"usage":{"type":"object","additionalProperties":false,"required":["prompt_tokens","total_tokens"],"properties":{
"prompt_tokens":{"type":"integer"},"total_tokens":{"type":"integer"}}}}})"},
};

json::Value parse(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "a schema that is no JSON");
  return value.take();
}

std::string_view treatment_text(Treatment treatment) {
  switch (treatment) {
    case Treatment::Required:
    case Treatment::Honoured:
      return "honoured";
    case Treatment::Bookkeeping:
      return "accepted";
    case Treatment::Refused:
      return "refused";
  }
  return "";
}

json::Object request_schema(std::span<const FieldSpec> fields) {
  const json::Object settings = settings_schema();
  const json::Object& described = settings.at("properties").get_object();
  json::Object properties;
  json::Array required;
  for (const FieldSpec& field : fields) {
    json::Object schema;
    if (field.treatment == Treatment::Refused) {
      json::Array neutral{nullptr};
      if (!field.neutral.empty()) neutral.push_back(parse(field.neutral));
      schema["enum"] = std::move(neutral);
    } else if (!field.schema.empty()) {
      schema = parse(field.schema).get_object();
    } else if (const json::Value* known = described.if_contains(field.name)) {
      schema = known->get_object();
    }
    schema["x-llorch"] = treatment_text(field.treatment);
    properties[field.name] = std::move(schema);
    if (field.treatment == Treatment::Required) required.emplace_back(field.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

}  // namespace

void add_schemas(json::Object& schemas) {
  for (const Named& named : kAnswers) schemas[named.name] = parse(named.schema);
  schemas["CompletionRequest"] = request_schema(completion_fields());
  schemas["ChatCompletionRequest"] = request_schema(chat_fields());
  schemas["ChatMessage"] = request_schema(chat_message_fields());
  schemas["EmbeddingRequest"] = request_schema(embedding_fields());
}

}  // namespace llorch::openai
