// The OpenAPI 3.1 document: paths from the endpoint table, bodies from what describes the structs
// of the wire and OpenAI's fields. Tests hold real answers against it.
#include "api/openapi.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/worker_api.h"
#include "contract/worker_info.h"
#include "openai/schemas.h"
#include "worker_http/endpoint_table.h"
#include "worker_http/routes.h"

namespace llorch::worker_http {

json::Object openapi_document() {
  api::SchemaTable table;
  table.request<contract::CancelRequest>("CancelRequest");
  table.answer<contract::CancelAnswer>("CancelAnswer");
  table.request<contract::ShutdownRequest>("ShutdownRequest");
  table.answer<contract::ShutdownAnswer>("ShutdownAnswer");
  table.request<contract::TokenizeRequest>("TokenizeRequest");
  table.answer<contract::TokenizeAnswer>("TokenizeAnswer");
  table.request<contract::DetokenizeRequest>("DetokenizeRequest");
  table.answer<contract::DetokenizeAnswer>("DetokenizeAnswer");
  table.answer<contract::ErrorEvent>("ErrorEvent");
  json::Object& schemas = table.schemas;
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
