// The OpenAPI 3.1 document: paths from the endpoint table, bodies from the texts below. Tests hold
// the parsers and real answers against it.
#include <fmt/format.h>

#include <array>

#include "api/openapi.h"
#include "contract/worker_info.h"
#include "pool/endpoint_table.h"
#include "pool/routes.h"

namespace llorch::pool {
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
        "Health",
        R"({"type":"object","additionalProperties":false,"required":["status","pool_id","version","uptime_seconds",
"workers_total","workers_ready","workers_failed","confinement"],"properties":{"confinement":{"type":"string"},"status":{"enum":["starting","healthy","unhealthy","draining"]},
"pool_id":{"type":"string"},"version":{"type":"string"},"uptime_seconds":{"type":"number"},"workers_total":{"type":"integer"},
"workers_ready":{"type":"integer"},"workers_failed":{"type":"integer"},"reasons":{"type":"array","items":{"type":"string"}},
"error":{"type":"object"}}})"},
    NamedSchema{
        "State",
        R"({"type":"object","additionalProperties":false,"required":["pool_id","version","uptime_seconds","host","models",
"workers","downloads"],"properties":{"pool_id":{"type":"string"},"version":{"type":"string"},"uptime_seconds":{"type":"number"},
"host":{"$ref":"#/components/schemas/Host"},"models":{"type":"array","items":{"$ref":"#/components/schemas/Model"}},
"workers":{"type":"array","items":{"$ref":"#/components/schemas/Worker"}},
"downloads":{"type":"array","items":{"$ref":"#/components/schemas/Download"}}}})"},
    NamedSchema{
        "Host",
        R"({"type":"object","additionalProperties":false,"required":["hostname","os","cpu","isa","cores","threads",
"memory_total_bytes","memory_free_bytes","disk_free_bytes","gpus","gpu_note"],"properties":{"hostname":{"type":"string"},
"os":{"type":"string"},"cpu":{"type":"string"},"isa":{"type":"string"},"cores":{"type":"integer"},"threads":{"type":"integer"},
"memory_total_bytes":{"type":"integer"},"memory_free_bytes":{"type":"integer"},"disk_free_bytes":{"type":"integer"},
"gpu_note":{"type":"string"},"gpus":{"type":"array","items":{"type":"object","additionalProperties":false,
"required":["index","name","uuid","driver","vram_total_bytes","vram_free_bytes"],"properties":{"index":{"type":"integer"},
"name":{"type":"string"},"uuid":{"type":"string"},"driver":{"type":"string"},"vram_total_bytes":{"type":"integer"},
"vram_free_bytes":{"type":"integer"},"power_watts":{"type":"number"},"temperature_celsius":{"type":"number"},
"utilization":{"type":"number"}}}}}})"},
    NamedSchema{
        "MemoryNeed",
        R"({"type":"object","additionalProperties":false,"required":["weights_bytes","kv_bytes","scratch_bytes","runtime_bytes",
"host_bytes","device_bytes","context","slots","kv_type","kv_bytes_per_token"],"properties":{"weights_bytes":{"type":"integer"},
"kv_bytes":{"type":"integer"},"scratch_bytes":{"type":"integer"},"runtime_bytes":{"type":"integer"},
"host_bytes":{"type":"integer"},"device_bytes":{"type":"integer"},"context":{"type":"integer"},"slots":{"type":"integer"},
"kv_type":{"type":"string"},"kv_bytes_per_token":{"type":"integer"},"kv_q8_0_bytes":{"type":"integer"}}})"},
    NamedSchema{
        "Worker",
        R"({"type":"object","additionalProperties":false,"required":["id","backend","model","state","uri","pid","started_at",
"ready_at","ended_at","load_progress","planned","memory_bytes","memory_peak_bytes","vram_bytes","context","slots","slots_busy",
"queue_depth","tokens_per_second","category","reason","last_log_lines","log_file","trusted"],"properties":{"id":{"type":"string"},
"backend":{"type":"string"},"model":{"type":"string"},
"state":{"enum":["starting","ready","busy","draining","stopped","failed"]},"uri":{"type":"string"},"pid":{"type":"integer"},
"gpu":{"type":"integer"},"started_at":{"type":"string"},"ready_at":{"type":"string"},"ended_at":{"type":"string"},
"load_progress":{"type":"number","minimum":0,"maximum":1},"planned":{"$ref":"#/components/schemas/MemoryNeed"},
"memory_bytes":{"type":"integer"},"memory_peak_bytes":{"type":"integer"},"vram_bytes":{"type":"integer"},
"context":{"type":"integer"},"slots":{"type":"integer"},"slots_busy":{"type":"integer"},"queue_depth":{"type":"integer"},
"tokens_per_second":{"type":"number"},"last_token_age_ms":{"type":"integer"},
"category":{"enum":["none","stopped","start_failed","crash","oom_kill","timeout","hang"]},"reason":{"type":"string"},
"exit_code":{"type":"integer"},"exit_signal":{"type":"integer"},"last_log_lines":{"type":"array","items":{"type":"string"}},
"log_file":{"type":"string"},"trusted":{"type":"string"}}})"},
    NamedSchema{
        "WorkerList",
        R"({"type":"object","additionalProperties":false,"required":["workers"],"properties":{"workers":{"type":"array",
"items":{"$ref":"#/components/schemas/Worker"}}}})"},
    NamedSchema{
        "StartWorkerRequest",
        R"({"type":"object","additionalProperties":false,"required":["backend","model"],"properties":{
"backend":{"enum":["cpu","cuda"]},"model":{"type":"string","minLength":1,"maxLength":128},
"gpu":{"type":"integer","minimum":0,"maximum":255},"ctx":{"type":"integer","minimum":16,"maximum":16777216},
"slots":{"type":"integer","minimum":1,"maximum":256},"kv":{"enum":["f16","q8_0"]}}})"},
    NamedSchema{"StopWorkerRequest",
                R"({"type":"object","additionalProperties":false,"required":["id"],"properties":{
"id":{"type":"string","minLength":1,"maxLength":64},"timeout_sec":{"type":"integer","minimum":0,"maximum":3600,
"description":"How long what runs may go on; then it ends with an error. Default 30."}}})"},
    NamedSchema{
        "ReadyCallback",
        R"({"type":"object","required":["worker_id","uri","model_ref","memory_bytes","memory_architecture","worker_type",
"capabilities","version"],"properties":{"worker_id":{"type":"string"},"uri":{"type":"string"},"model_ref":{"type":"string"},
"memory_bytes":{"type":"integer"},"memory_architecture":{"type":"string"},"worker_type":{"type":"string"},
"capabilities":{"type":"array","items":{"type":"string"}},"version":{"type":"string"}}})"},
    NamedSchema{
        "Ok",
        R"({"type":"object","additionalProperties":false,"required":["status"],"properties":{"status":{"const":"ok"}}})"},
    NamedSchema{
        "Model",
        R"({"type":"object","required":["id","name","path","format","size_gb","architecture","downloaded","backends","metadata"],
"properties":{"id":{"type":"string"},"name":{"type":"string"},"path":{"type":"string"},"format":{"type":"string"},
"size_gb":{"type":"number"},"size_bytes":{"type":"integer"},"architecture":{"type":"string"},"downloaded":{"type":"boolean"},
"backends":{"type":"array","items":{"type":"string"}},"metadata":{"type":"object","properties":{"repo":{"type":"string"},
"context_length":{"type":"integer"},"vocab_size":{"type":"integer"},"parameters":{"type":"integer"},
"quantization":{"type":"string"},"license":{"type":"string"},"unsupported":{"type":"string"}}},"revision":{"type":"string"},
"files":{"type":"array","items":{"type":"object","required":["path","size"],"properties":{"path":{"type":"string"},
"size":{"type":"integer"},"sha256":{"type":"string"},"modified_ms":{"type":"integer"},"changed_ns":{"type":"integer"},
"inode":{"type":"integer"},"damaged":{"type":"boolean"}}}},"updated_at":{"type":"string"},
"state":{"enum":["not_downloaded","downloading","ready","changed","damaged","missing","unsupported"]}}})"},
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
"id":{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._-]*$","minLength":1,"maxLength":128},
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

json::Object success(const Endpoint& endpoint) {
  json::Object media;
  const json::Object text{{"type", "string"}};
  if (!endpoint.response_schema.empty())
    media = content("application/json", ref(endpoint.response_schema));
  if (!endpoint.stream_type.empty()) media[endpoint.stream_type] = json::Object{{"schema", text}};
  if (media.empty()) media = content("text/plain", text);
  return {{"description", endpoint.summary}, {"content", std::move(media)}};
}

json::Array parameters(const Endpoint& endpoint) {
  json::Array all = path_parameters(endpoint.path);
  if (endpoint.request_schema == "ReadyCallback") {
    all.push_back(json::Object{{"name", contract::kWorkerMarkHeader},
                               {"in", "header"},
                               {"required", true},
                               {"schema", json::Object{{"type", "string"}}}});
  }
  if (endpoint.query.empty()) return all;
  const json::Value query = parse_text(endpoint.query);
  for (const auto& parameter : query.get_object()) {
    all.push_back(json::Object{{"name", parameter.key()},
                               {"in", "query"},
                               {"required", false},
                               {"schema", parameter.value()}});
  }
  return all;
}

json::Object operation(const Endpoint& endpoint) {
  json::Object out{{"summary", endpoint.summary}};
  if (json::Array all = parameters(endpoint); !all.empty()) out["parameters"] = std::move(all);
  if (!endpoint.request_schema.empty()) {
    out["requestBody"] = json::Object{
        {"required", true}, {"content", content("application/json", ref(endpoint.request_schema))}};
  }
  json::Object responses{{fmt::format("{}", endpoint.status), success(endpoint)}};
  if (endpoint.path == "/health") responses["503"] = success(endpoint);
  responses["default"] = json::Object{{"description", "An error; the code says which."},
                                      {"content", content("application/json", ref("Error"))}};
  out["responses"] = std::move(responses);
  return out;
}

}  // namespace

json::Object openapi_document() {
  json::Object paths;
  json::Object schemas;
  for (const NamedSchema& named : kSchemas) schemas[named.name] = parse_text(named.schema);
  for (const Endpoint& endpoint : endpoints()) {
    json::Value& path = paths[endpoint.path];
    if (!path.is_object()) path = json::Object();
    path.get_object()[method_key(endpoint.method)] = operation(endpoint);
  }
  return make_document({.title = "llama-orch pool manager",
                        .description =
                            "One per host: which models are here, which devices, which worker "
                            "processes.",
                        .paths = std::move(paths),
                        .schemas = std::move(schemas)});
}

}  // namespace llorch::pool
