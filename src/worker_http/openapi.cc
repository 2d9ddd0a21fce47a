// The OpenAPI 3.1 document: paths from the endpoint table, request schemas from the field tables,
// answers from the texts below. Tests hold real answers against it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/openapi.h"
#include "worker_http/endpoint_table.h"
#include "worker_http/routes.h"

namespace llorch::worker_http {
namespace {

using api::content;
using api::make_document;
using api::method_key;
using api::NamedSchema;
using api::parse_text;
using api::path_parameters;
using api::ref;

constexpr std::array kSchemas = {
    NamedSchema{
        "OpenAiError",
        R"({"type":"object","required":["error"],"additionalProperties":false,"properties":{"error":{"type":"object",
"required":["message","type","param","code"],"additionalProperties":false,"properties":{"message":{"type":"string"},
"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})"},
    NamedSchema{
        "HealthReport",
        R"({"type":"object","additionalProperties":false,"required":["status","model_loaded","vram_bytes","memory_type",
"model","architecture","quant_kind","memory_bytes","tokenizer_kind","vocab_size","context_length","uptime_seconds","queue_depth",
"slots_total","slots_busy","kv_blocks_total","kv_blocks_free","last_token_age_ms","backend","device","version"],"properties":{
"status":{"enum":["healthy","loading","unhealthy","draining"]},"model_loaded":{"type":"boolean"},"vram_bytes":{"type":"integer"},
"memory_type":{"enum":["cpu","vram-only"]},"load_progress":{"type":"number","minimum":0,"maximum":1},"reason":{"type":"string"},
"model":{"type":"string"},"architecture":{"type":"string"},"quant_kind":{"type":"string"},"memory_bytes":{"type":"integer"},
"tokenizer_kind":{"type":"string"},"chat_template":{"type":"boolean","description":"Whether the model has one: /v1/chat/completions needs it."},"vocab_size":{"type":"integer"},"context_length":{"type":"integer"},
"uptime_seconds":{"type":"number"},"queue_depth":{"type":"integer"},"slots_total":{"type":"integer"},
"slots_busy":{"type":"integer"},"kv_blocks_total":{"type":"integer"},"kv_blocks_free":{"type":"integer"},
"last_token_age_ms":{"type":["integer","null"]},"backend":{"type":"string"},"device":{"type":"string"},
"version":{"type":"string"}}})"},
    NamedSchema{
        "StartedEvent",
        R"({"type":"object","additionalProperties":false,"required":["job_id","model","started_at","seed","prompt_tokens",
"cached_tokens","queue_ms"],"properties":{"job_id":{"type":"string"},"model":{"type":"string"},"started_at":{"type":"string"},
"seed":{"type":"integer"},"prompt_tokens":{"type":"integer"},"cached_tokens":{"type":"integer"},"queue_ms":{"type":"number"}}})"},
    NamedSchema{
        "TokenEvent",
        R"({"type":"object","additionalProperties":false,"required":["t","i"],"properties":{"t":{"type":"string"},
"i":{"type":"integer"}}})"},
    NamedSchema{
        "EndEvent",
        R"({"type":"object","additionalProperties":false,"required":["tokens_out","decode_time_ms","stop_reason",
"stop_sequence_matched","prompt_tokens","prefill_ms","ttft_ms","seed"],"properties":{"tokens_out":{"type":"integer"},
"decode_time_ms":{"type":"integer"},"stop_reason":{"enum":["max_tokens","eos","stop_sequence"]},
"stop_sequence_matched":{"type":["string","null"]},"prompt_tokens":{"type":"integer"},"prefill_ms":{"type":"number"},
"ttft_ms":{"type":"number"},"seed":{"type":"integer"}}})"},
    NamedSchema{
        "ErrorEvent",
        R"({"type":"object","additionalProperties":false,"required":["code","message","retriable"],"properties":{
"code":{"type":"string"},"message":{"type":"string"},"retriable":{"type":"boolean"}}})"},
    NamedSchema{
        "CancelAnswer",
        R"({"type":"object","additionalProperties":false,"required":["job_id","status"],"properties":{
"job_id":{"type":"string"},"status":{"const":"cancelling"}}})"},
    NamedSchema{
        "ShutdownAnswer",
        R"({"type":"object","additionalProperties":false,"required":["status"],"properties":{
"status":{"const":"draining"}}})"},
    NamedSchema{
        "TokenizeAnswer",
        R"({"type":"object","additionalProperties":false,"required":["tokens","pieces","count"],"properties":{
"tokens":{"type":"array","items":{"type":"integer"}},"pieces":{"type":"array","items":{"type":"string"}},
"count":{"type":"integer"}}})"},
    NamedSchema{
        "DetokenizeAnswer",
        R"({"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string"}}})"},
    NamedSchema{
        "Model",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","owned_by"],"properties":{
"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"}}})"},
    NamedSchema{
        "ModelList",
        R"({"type":"object","additionalProperties":false,"required":["object","data"],"properties":{"object":{"const":"list"},
"data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})"},
    NamedSchema{
        "Usage",
        R"({"type":"object","additionalProperties":false,"required":["prompt_tokens","completion_tokens","total_tokens",
"prompt_tokens_details"],"properties":{"prompt_tokens":{"type":"integer"},"completion_tokens":{"type":"integer"},
"total_tokens":{"type":"integer"},"prompt_tokens_details":{"type":"object","additionalProperties":false,
"required":["cached_tokens"],"properties":{"cached_tokens":{"type":"integer"}}}}})"},
    NamedSchema{
        "CompletionLogprobs",
        R"({"type":["object","null"],"additionalProperties":false,"required":["tokens","token_logprobs","top_logprobs",
"text_offset"],"properties":{"tokens":{"type":"array","items":{"type":"string"}},"token_logprobs":{"type":"array",
"items":{"type":["number","null"]}},"top_logprobs":{"type":"array","items":{"type":["object","null"],"additionalProperties":{"type":"number"}}},
"text_offset":{"type":"array","items":{"type":"integer"}}}})"},
    NamedSchema{
        "TokenLogprob",
        R"({"type":"object","additionalProperties":false,"required":["token","logprob","bytes"],"properties":{
"token":{"type":"string"},"logprob":{"type":"number"},"bytes":{"type":"array","items":{"type":"integer"}},
"top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}})"},
    NamedSchema{
        "ChatLogprobs",
        R"({"type":["object","null"],"additionalProperties":false,"required":["content","refusal"],"properties":{
"content":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}},"refusal":{"type":"null"}}})"},
    NamedSchema{
        "Completion",
        R"({"type":"object","additionalProperties":false,"required":["id","object","created","model","choices"],"properties":{
"id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},
"system_fingerprint":{"type":"string"},"choices":{"type":"array","items":{"type":"object","additionalProperties":false,
"required":["index","text","logprobs","finish_reason"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},
"logprobs":{"$ref":"#/components/schemas/CompletionLogprobs"},"finish_reason":{"enum":["stop","length",null]}}}},
"usage":{"oneOf":[{"type":"null"},{"$ref":"#/components/schemas/Usage"}]}}})"},
    NamedSchema{
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
    NamedSchema{
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
"finish_reason":{"enum":["stop","length","tool_calls",null]}}}},"usage":{"oneOf":[{"type":"null"},{"$ref":"#/components/schemas/Usage"}]}}})"},
    NamedSchema{
        "EmbeddingList",
        R"({"type":"object","additionalProperties":false,"required":["object","data","model","usage"],"properties":{
"object":{"const":"list"},"model":{"type":"string"},"data":{"type":"array","items":{"type":"object",
"additionalProperties":false,"required":["object","index","embedding"],"properties":{"object":{"const":"embedding"},
"index":{"type":"integer"},"embedding":{"oneOf":[{"type":"array","items":{"type":"number"}},{"type":"string"}]}}}},
"usage":{"type":"object","additionalProperties":false,"required":["prompt_tokens","total_tokens"],"properties":{
"prompt_tokens":{"type":"integer"},"total_tokens":{"type":"integer"}}}}})"},
    NamedSchema{"Document", R"({"type":"object","required":["openapi","info","paths"]})"},
};

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
  json::Object properties;
  json::Array required;
  for (const FieldSpec& field : fields) {
    json::Object schema;
    if (field.treatment == Treatment::Refused) {
      json::Array neutral{nullptr};
      if (!field.neutral.empty()) neutral.push_back(parse_text(field.neutral));
      schema["enum"] = std::move(neutral);
    } else if (!field.schema.empty()) {
      schema = parse_text(field.schema).get_object();
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

json::Object success(const Endpoint& endpoint) {
  json::Object media;
  if (!endpoint.response_schema.empty())
    media = content("application/json", ref(endpoint.response_schema));
  if (!endpoint.stream_type.empty()) {
    const bool is_chat = endpoint.response_schema == "ChatCompletion";
    json::Value schema = json::Object{{"type", "string"}};
    if (endpoint.openai) schema = ref(is_chat ? "ChatCompletionChunk" : endpoint.response_schema);
    media[endpoint.stream_type] = json::Object{{"schema", std::move(schema)}};
  }
  if (media.empty()) media = content("text/plain", json::Object{{"type", "string"}});
  return {{"description", endpoint.summary}, {"content", std::move(media)}};
}

json::Object operation(const Endpoint& endpoint) {
  json::Object out{{"summary", endpoint.summary}};
  json::Array parameters = path_parameters(endpoint.path);
  if (!parameters.empty()) out["parameters"] = std::move(parameters);
  if (endpoint.fields != nullptr) {
    const auto fields = endpoint.fields();
    const bool is_required = std::any_of(fields.begin(), fields.end(), [](const FieldSpec& field) {
      return field.treatment == Treatment::Required;
    });
    out["requestBody"] =
        json::Object{{"required", is_required},
                     {"content", content("application/json", ref(endpoint.request_schema))}};
  }
  const std::string_view error = endpoint.openai ? "OpenAiError" : "Error";
  json::Object responses{{fmt::format("{}", endpoint.status), success(endpoint)}};
  if (endpoint.path == "/health") responses["503"] = success(endpoint);
  responses["default"] = json::Object{{"description", "An error; the code says which."},
                                      {"content", content("application/json", ref(error))}};
  out["responses"] = std::move(responses);
  return out;
}

}  // namespace

json::Object openapi_document() {
  json::Object paths;
  json::Object schemas;
  for (const NamedSchema& named : kSchemas) schemas[named.name] = parse_text(named.schema);
  schemas["ChatMessage"] = request_schema(openai::chat_message_fields());
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.fields != nullptr)
      schemas[endpoint.request_schema] = request_schema(endpoint.fields());
    json::Value& path = paths[endpoint.path];
    if (!path.is_object()) path = json::Object();
    path.get_object()[method_key(endpoint.method)] = operation(endpoint);
  }
  return make_document({.title = "llama-orch worker",
                        .description = "One process, one model: text generation as a "
                                       "stream, and OpenAI's endpoints for it.",
                        .paths = std::move(paths),
                        .schemas = std::move(schemas)});
}

}  // namespace llorch::worker_http
