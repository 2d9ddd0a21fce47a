// The OpenAPI 3.1 document: paths from the endpoint table, bodies from what describes the structs
// of the wire. Tests hold the parsers and real answers against it.
#include <algorithm>

#include "api/openapi.h"
#include "catalog/registry.h"
#include "contract/join_api.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "contract/pool_state.h"
#include "contract/worker_api.h"
#include "contract/worker_info.h"
#include "pool/bodies.h"
#include "pool/endpoint_table.h"
#include "pool/routes.h"

namespace llorch::pool {
namespace {

// A model of the state has the fields of the catalog's entry and those of PoolModel.
json::Object state_schema(json::Object model) {
  json::Object extra = contract::schema_of<contract::PoolModel>();
  for (auto& [name, schema] : extra["properties"].get_object())
    model["properties"].get_object()[name] = schema;
  for (const json::Value& name : extra["required"].get_array()) {
    json::Array& required = model["required"].get_array();
    if (std::find(required.begin(), required.end(), name) == required.end())
      required.push_back(name);
  }
  json::Object state = contract::schema_of<contract::PoolState>();
  json::Object& properties = state["properties"].get_object();
  properties["models"] = json::Object{{"type", "array"}, {"items", std::move(model)}};
  const json::Object downloads =
      contract::described_schema<DownloadList>(contract::SchemaOf::Answer);
  for (const auto& field : downloads.at("properties").get_object())
    properties[field.key()] = field.value();
  state["required"].get_array().emplace_back("downloads");
  return state;
}

}  // namespace

json::Object openapi_document() {
  api::SchemaTable table;
  table.answer<Health>("Health");
  table.answer<OkAnswer>("Ok");
  table.answer<contract::ErrorEvent>("ErrorEvent");
  table.answer<contract::ShutdownAnswer>("ShutdownAnswer");
  table.answer<WorkerList>("WorkerList");
  table.request<StopWorkerRequest>("StopWorkerRequest");
  table.answer<ModelList>("ModelList");
  table.request<catalog::RegisterRequest>("RegisterModelRequest");
  table.request<catalog::UpdateRequest>("UpdateModelRequest");
  table.answer<RevisionList>("RevisionList");
  table.answer<Plans>("Plans");
  table.answer<Manifest>("Manifest");
  table.request<DownloadBody>("DownloadRequest");
  table.request<NamedDownloadBody>("NamedDownloadRequest");
  table.request<VerifyBody>("VerifyRequest");
  table.answer<DownloadAccepted>("DownloadAccepted");
  table.answer<DownloadView>("Download");
  table.answer<DownloadList>("DownloadList");
  table.answer<LeftoverList>("LeftoverList");
  table.request<catalog::AdoptRequest>("AdoptRequest");
  table.answer<catalog::AdoptReport>("AdoptReport");
  table.request<contract::PoolJoinRequest>("PoolJoinRequest");
  table.answer<contract::PoolJoinState>("PoolJoinState");
  json::Object& schemas = table.schemas;
  schemas["Host"] = contract::schema_of<contract::HostInfo>();
  schemas["Worker"] = contract::schema_of<contract::PoolWorker>();
  schemas["StartWorkerRequest"] = contract::schema_of<contract::StartWorkerRequest>();
  schemas["ReadyCallback"] = contract::schema_of<contract::ReadyCallback>();
  schemas["Model"] = contract::schema_of<ShownModel>();
  schemas["State"] = state_schema(schemas["Model"].get_object());
  return api::make_document(
      {.title = "llama-orch pool manager",
       .description = "One per host: which models are here, which devices, which worker processes.",
       .endpoints = api::texts_of(endpoints()),
       .schemas = std::move(schemas)});
}

}  // namespace llorch::pool
