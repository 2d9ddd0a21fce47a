// The OpenAPI 3.1 document: paths from the endpoint table, bodies from what describes the structs
// of the wire and OpenAI's fields, the rest from the texts below. Tests hold real answers against
// it.
#include <array>

#include "api/openapi.h"
#include "contract/inference.h"
#include "contract/worker_info.h"
#include "openai/schemas.h"
#include "worker_http/endpoint_table.h"
#include "worker_http/routes.h"

namespace llorch::worker_http {
namespace {

using api::NamedSchema;

constexpr std::array kSchemas = {
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
        "CancelRequest",
        R"({"type":"object","additionalProperties":false,"required":["job_id"],"properties":{
"job_id":{"type":"string"}}})"},
    NamedSchema{"ShutdownRequest", R"({"type":"object","additionalProperties":false,"properties":{
"timeout_sec":{"type":"integer","minimum":0,"maximum":3600,
"description":"How long what runs may go on; then it ends with an error. Default: until its own end."}}})"},
    NamedSchema{"TokenizeRequest",
                R"({"type":"object","additionalProperties":false,"required":["text"],"properties":{
"text":{"type":"string"},
"add_special":{"type":"boolean","default":false,"description":"The begin and end tokens that the model wants around a text."},
"special":{"type":"boolean","default":false,"description":"Text like <|im_end|> is that token."},
"parse_special":{"type":"boolean","default":false,"description":"The same as special."}}})"},
    NamedSchema{
        "DetokenizeRequest",
        R"({"type":"object","additionalProperties":false,"required":["tokens"],"properties":{
"tokens":{"type":"array","items":{"type":"integer","minimum":0}}}})"},
    NamedSchema{"Document", R"({"type":"object","required":["openapi","info","paths"]})"},
};

}  // namespace

json::Object openapi_document() {
  json::Object schemas = api::parse_schemas(kSchemas);
  openai::add_schemas(schemas);
  schemas["HealthReport"] = contract::schema_of<contract::HealthReport>();
  schemas["ExecuteRequest"] = contract::schema_of<contract::InferenceRequest>();
  schemas["StartedEvent"] = contract::schema_of<contract::StartedEvent>();
  schemas["TokenEvent"] = contract::schema_of<contract::TokenEvent>();
  schemas["EndEvent"] = contract::schema_of<contract::InferenceResult>();
  return api::make_document({.title = "llama-orch worker",
                             .description = "One process, one model: text generation as a "
                                            "stream, and OpenAI's endpoints for it.",
                             .endpoints = api::texts_of(endpoints()),
                             .schemas = std::move(schemas)});
}

}  // namespace llorch::worker_http
