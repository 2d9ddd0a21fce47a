// The OpenAPI 3.1 document: paths from the endpoint table, bodies from what describes the structs
// of the wire, or from the texts below. Tests hold the parsers and real answers against it.
#include <algorithm>
#include <array>

#include "api/openapi.h"
#include "contract/join_api.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "contract/pool_state.h"
#include "contract/worker_info.h"
#include "pool/endpoint_table.h"
#include "pool/routes.h"

namespace llorch::pool {
namespace {

using api::NamedSchema;

constexpr std::string_view kModelStates =
    R"({"enum":["not_downloaded","downloading","ready","changed","damaged","missing","unsupported"]})";

constexpr std::array kSchemas = {
    NamedSchema{
        "Health",
        R"({"type":"object","additionalProperties":false,"required":["status","pool_id","version","uptime_seconds",
"workers_total","workers_ready","workers_failed","confinement"],"properties":{"confinement":{"type":"string"},"status":{"enum":["starting","healthy","unhealthy","draining"]},
"pool_id":{"type":"string"},"version":{"type":"string"},"uptime_seconds":{"type":"number"},"workers_total":{"type":"integer"},
"workers_ready":{"type":"integer"},"workers_failed":{"type":"integer"},"reasons":{"type":"array","items":{"type":"string"}},
"error":{"type":"object"}}})"},
    NamedSchema{
        "WorkerList",
        R"({"type":"object","additionalProperties":false,"required":["workers"],"properties":{"workers":{"type":"array",
"items":{"$ref":"#/components/schemas/Worker"}}}})"},
    NamedSchema{"StopWorkerRequest",
                R"({"type":"object","additionalProperties":false,"required":["id"],"properties":{
"id":{"type":"string","minLength":1,"maxLength":64},"timeout_sec":{"type":"integer","minimum":0,"maximum":3600,
"description":"How long what runs may go on; then it ends with an error. Default 30."}}})"},
    NamedSchema{
        "Ok",
        R"({"type":"object","additionalProperties":false,"required":["status"],"properties":{"status":{"const":"ok"}}})"},
    NamedSchema{
        "ModelList",
        R"({"type":"object","additionalProperties":false,"required":["models"],"properties":{"models":{"type":"array",
"items":{"$ref":"#/components/schemas/Model"}},"known":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})"},
    NamedSchema{
        "RevisionList",
        R"({"type":"object","additionalProperties":false,"required":["models"],"properties":{"models":{"type":"array",
"items":{"type":"object","required":["id","state"],"properties":{"id":{"type":"string"},"state":{"type":"string"}}}}}})"},
    NamedSchema{"RegisterModelRequest",
                R"({"type":"object","additionalProperties":false,"required":["id"],"properties":{
"id":{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._-]*)?$","minLength":1,"maxLength":128},
"name":{"type":"string","maxLength":1024},"repo":{"type":"string","maxLength":1024},
"architecture":{"type":"string","maxLength":1024},"path":{"type":"string","maxLength":4096}}})"},
    NamedSchema{
        "UpdateModelRequest",
        R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":"string","maxLength":1024},
"repo":{"type":"string","maxLength":1024},"architecture":{"type":"string","maxLength":1024},
"path":{"type":"string","maxLength":4096},"downloaded":{"type":"boolean"}}})"},
    NamedSchema{
        "Neighbours",
        R"({"type":"array","maxItems":64,"items":{"type":"object","additionalProperties":false,"required":["url"],"properties":{
"url":{"type":"string","minLength":1,"maxLength":2048},"token":{"type":"string","maxLength":4096}}}})"},
    NamedSchema{
        "DownloadRequest",
        R"({"type":"object","additionalProperties":false,"properties":{"ref":{"type":"string","minLength":1,"maxLength":2048},
"sha256":{"type":"string","pattern":"^[0-9a-f]{64}$"},"hf_token":{"type":"string","minLength":1,"maxLength":4096},
"connections":{"type":"integer","minimum":1,"maximum":16},"neighbours":{"$ref":"#/components/schemas/Neighbours"},"only_neighbours":{"type":"boolean"}}})"},
    NamedSchema{
        "NamedDownloadRequest",
        R"({"type":"object","additionalProperties":false,"properties":{"id":{"type":"string","minLength":1,"maxLength":128},
"ref":{"type":"string","minLength":1,"maxLength":2048},"sha256":{"type":"string","pattern":"^[0-9a-f]{64}$"},"hf_token":{"type":"string","minLength":1,"maxLength":4096},
"connections":{"type":"integer","minimum":1,"maximum":16},"neighbours":{"$ref":"#/components/schemas/Neighbours"},"only_neighbours":{"type":"boolean"}}})"},
    NamedSchema{
        "VerifyRequest",
        R"({"type":"object","additionalProperties":false,"properties":{"repair":{"type":"boolean"},
"neighbours":{"$ref":"#/components/schemas/Neighbours"}}})"},
    NamedSchema{
        "DownloadAccepted",
        R"({"type":"object","additionalProperties":false,"required":["download_id","model","events_url","state","joined"],"properties":{
"download_id":{"type":"string"},"model":{"type":"string"},"events_url":{"type":"string"},"state":{"type":"string"},
"joined":{"type":"boolean"}}})"},
    NamedSchema{
        "Download",
        R"({"type":"object","additionalProperties":false,"required":["id","kind","model","ref","state","started_at","ended_at",
"progress","notes","error"],"properties":{"id":{"type":"string"},"kind":{"enum":["download","verify"]},"model":{"type":"string"},
"ref":{"type":"string"},
"state":{"enum":["queued","running","done","failed","cancelled"]},"started_at":{"type":"string"},"ended_at":{"type":"string"},
"progress":{"type":["object","null"]},"notes":{"type":"array","items":{"type":"string"}},
"error":{"oneOf":[{"type":"null"},{"$ref":"#/components/schemas/ErrorEvent"}]}}})"},
    NamedSchema{
        "DownloadList",
        R"({"type":"object","additionalProperties":false,"required":["downloads"],"properties":{"downloads":{"type":"array",
"items":{"$ref":"#/components/schemas/Download"}}}})"},
    NamedSchema{
        "LeftoverList",
        R"({"type":"object","additionalProperties":false,"required":["leftovers","bytes"],"properties":{"bytes":{"type":"integer"},
"leftovers":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["kind","model","path","ref","bytes"],
"properties":{"kind":{"enum":["unfinished_download","old_revision","part_of_file","package","hashes"]},"model":{"type":"string"},
"path":{"type":"string"},"ref":{"type":"string"},"bytes":{"type":"integer"}}}}}})"},
    NamedSchema{
        "AdoptRequest",
        R"({"type":"object","additionalProperties":false,"properties":{"from":{"type":"string","minLength":1,"maxLength":4096},
"dry_run":{"type":"boolean"}}})"},
    NamedSchema{
        "Adoptable",
        R"({"type":"object","additionalProperties":false,"required":["from","id","name","path","ref","bytes"],"properties":{
"from":{"enum":["ollama","huggingface","folder"]},"id":{"type":"string"},"name":{"type":"string"},"path":{"type":"string"},
"ref":{"type":"string"},"bytes":{"type":"integer"},"problem":{"type":"string"}}})"},
    NamedSchema{
        "AdoptReport",
        R"({"type":"object","additionalProperties":false,"required":["places","adopted","skipped"],"properties":{
"places":{"type":"array","items":{"type":"string"}},"adopted":{"type":"array","items":{"$ref":"#/components/schemas/Adoptable"}},
"skipped":{"type":"array","items":{"$ref":"#/components/schemas/Adoptable"}}}})"},
    NamedSchema{
        "ErrorEvent",
        R"({"type":"object","additionalProperties":false,"required":["code","message","retriable"],"properties":{
"code":{"type":"string"},"message":{"type":"string"},"retriable":{"type":"boolean"}}})"},
    NamedSchema{
        "Plans",
        R"({"type":"object","additionalProperties":false,"required":["model","plans"],"properties":{"model":{"type":"string"},
"plans":{"type":"array","items":{"type":"object","required":["device","fits"],"properties":{"device":{"type":"string"},
"fits":{"type":"boolean"}}}}}})"},
    NamedSchema{
        "Manifest",
        R"({"type":"object","required":["id","ref","revision","files"],"properties":{"id":{"type":"string"},
"ref":{"type":"string"},"revision":{"type":"string"},"files":{"type":"array","items":{"type":"object",
"required":["path","size","sha256","chunks"],"properties":{"path":{"type":"string"},"size":{"type":"integer"},
"sha256":{"type":"string"},"chunks":{"type":"array","items":{"type":"string"}}}}}}})"},
    NamedSchema{
        "ShutdownAnswer",
        R"({"type":"object","additionalProperties":false,"required":["status"],"properties":{
"status":{"const":"draining"}}})"},
    NamedSchema{"Document", R"({"type":"object","required":["openapi","info","paths"]})"},
};

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
  properties["downloads"] =
      api::parse_text(R"({"type":"array","items":{"$ref":"#/components/schemas/Download"}})");
  state["required"].get_array().emplace_back("downloads");
  return state;
}

}  // namespace

json::Object openapi_document() {
  json::Object schemas = api::parse_schemas(kSchemas);
  schemas["Host"] = contract::schema_of<contract::HostInfo>();
  schemas["Worker"] = contract::schema_of<contract::PoolWorker>();
  schemas["StartWorkerRequest"] = contract::schema_of<contract::StartWorkerRequest>();
  schemas["PoolJoinRequest"] =
      contract::described_schema<contract::PoolJoinRequest>(contract::SchemaOf::Request);
  schemas["PoolJoinState"] =
      contract::described_schema<contract::PoolJoinState>(contract::SchemaOf::Answer);
  schemas["ReadyCallback"] = contract::schema_of<contract::ReadyCallback>();
  schemas["Model"] = contract::schema_of<contract::ModelEntry>();
  // What is known of a model beside its entry.
  schemas["Model"].get_object()["properties"].get_object()["state"] = api::parse_text(kModelStates);
  schemas["State"] = state_schema(schemas["Model"].get_object());
  return api::make_document(
      {.title = "llama-orch pool manager",
       .description = "One per host: which models are here, which devices, which worker processes.",
       .endpoints = api::texts_of(endpoints()),
       .schemas = std::move(schemas)});
}

}  // namespace llorch::pool
