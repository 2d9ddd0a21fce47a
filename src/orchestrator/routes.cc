#include "orchestrator/routes.h"

#include <array>
#include <cmath>
#include <utility>

#include "contract/error_table.h"
#include "contract/fleet_api.h"
#include "contract/join_api.h"
#include "contract/limits.h"
#include "contract/request_body.h"
#include "contract/worker_api.h"
#include "openai/schemas.h"
#include "orchestrator/endpoint_table.h"
#include "orchestrator/web_page.h"

namespace llorch::orchestrator {
namespace {

using contract::SchemaOf;
using http::Method;

constexpr std::string_view kHealthPath = "/health";
// What a worker would take, and the task's own fields.
constexpr std::size_t kTaskBytesMax = contract::kRequestBodyBytesMax + (std::size_t{64} << 10U);
constexpr std::size_t kOtherBytesMax = 64 * 1024;

http::Task<Status> show_document(const RouteParts&, Caller, const http::Request&,
                                 http::Responder& responder) {
  static const std::string document = json::serialize(openapi_document());
  http::Response response(200, "application/json", document);
  co_return co_await responder.send(std::move(response));
}

constexpr std::array kEndpoints = {
    Endpoint{{.method = Method::Post,
              .path = "/v2/tasks",
              .summary = "Submit a job. It is stored when this answers. Idempotency-Key: the same "
                         "word and body mean the same job for 24 hours.",
              .request_schema = "TaskRequest",
              .status = 202,
              .response_schema = "TaskAccepted"},
             Needs::Infer,
             submit_task},
    Endpoint{api::get("/v2/tasks", "Jobs, newest first.", "TaskPage",
                      api::query_of<contract::TaskQuery>),
             Needs::Infer, list_tasks},
    Endpoint{api::get("/v2/tasks/{id}", "One job.", "Task"), Needs::Infer, show_task},
    Endpoint{
        {.path = "/v2/tasks/{id}/events",
         .summary = "queued, loading, then the worker's events, and migrated between them. The "
                    "id of an event is a position; Last-Event-ID goes on behind it.",
         .stream_type = api::kSse},
        Needs::Infer,
        stream_task},
    Endpoint{api::get("/v2/tasks/{id}/why", "Why it is, was or would be placed where.", "Why"),
             Needs::Infer, explain_task},
    Endpoint{api::send(Method::Delete, "/v2/tasks/{id}",
                       "Cancel. Answers when the job has ended, with the time that took.", "", 200,
                       "TaskStopped"),
             Needs::Infer, stop_task},
    Endpoint{api::openai_models("The models of all hosts that this key may use."), Needs::Infer,
             openai_models},
    Endpoint{api::openai_model("One of them."), Needs::Infer, openai_model},
    Endpoint{api::openai_completions("Continue a prompt on whichever host is done first."),
             Needs::Infer, openai_completion},
    Endpoint{api::openai_chat("Answer a conversation. The job lives with its connection; "
                              "X-Llorch-Job says its id."),
             Needs::Infer, openai_chat},
    Endpoint{api::openai_embeddings("Vectors for texts."), Needs::Infer, openai_embedding},
    Endpoint{api::get("/v2/status", "The whole house in one answer.", "FleetStatus"), Needs::Admin,
             show_status},
    Endpoint{api::get("/v2/hosts", "Every host and how it is.", "HostList"), Needs::Admin,
             show_hosts},
    Endpoint{api::send(Method::Post, "/v2/hosts", "A host that is to be up from now on.",
                       "HostRequest", 202, "Host"),
             Needs::Admin, raise_host},
    Endpoint{api::get("/v2/hosts/{host}", "One host.", "Host"), Needs::Admin, show_host},
    Endpoint{api::send(Method::Post, "/v2/hosts/{host}/up", "The same for one that is known.", "",
                       202, "Host"),
             Needs::Admin, raise_host},
    Endpoint{api::send(Method::Post, "/v2/hosts/{host}/down",
                       "Stop its pool; its workers count as lost, its jobs move.", "", 202, "Host"),
             Needs::Admin, lower_host},
    Endpoint{api::get("/v2/pools", "The pool managers that are reached now.", "PoolList"),
             Needs::Admin, show_pools},
    Endpoint{api::send(Method::Post, "/v2/pools/join",
                       "A pool that comes by itself, under the name its host is to have.",
                       "JoinRequest", 200, "JoinAnswer"),
             Needs::Join, join_pool},
    Endpoint{{.method = Method::Post,
              .path = "/v2/pools/{host}/connect",
              .summary = "A connection that its pool keeps open, with Upgrade: llorch-pool; after "
                         "101 the orchestrator asks and the pool answers.",
              .stream_type = "application/octet-stream"},
             Needs::Join,
             connect_pool},
    Endpoint{
        api::send(Method::Delete, "/v2/pools/{host}",
                  "It leaves; its workers count as lost, its jobs move.", "", 200, "JoinAnswer"),
        Needs::Join, leave_pool},
    Endpoint{api::get("/v2/models", "Every model of every catalog: where it is and runs.",
                      "FleetModelList"),
             Needs::Infer, show_models},
    Endpoint{api::get("/v2/workers", "Every worker of every host.", "FleetWorkerList"),
             Needs::Admin, show_workers},
    Endpoint{api::get("/v2/keys", "Keys and what they have used.", "KeyList"), Needs::Admin,
             list_keys},
    Endpoint{api::send(Method::Post, "/v2/keys", "Make a key; it is shown this once.", "KeyRequest",
                       201, "Key"),
             Needs::Admin, add_key},
    Endpoint{api::send(Method::Delete, "/v2/keys/{id}",
                       "Revoke a key, by its id or name. Its live jobs are cut.", "", 200, "Key"),
             Needs::Admin, revoke_key},
    Endpoint{api::send(Method::Post, "/v2/backup", "A copy of the store in a new file.",
                       "BackupRequest", 200, "Backup"),
             Needs::Admin, back_up},
    Endpoint{api::send(Method::Post, "/v2/shutdown", "End the orchestrator; pools go on.", "", 202,
                       "ShutdownAnswer"),
             Needs::Admin, shut_down},
    Endpoint{api::get_health("Whether jobs are accepted.", "Health"), Needs::Nothing, show_health},
    Endpoint{api::get("/metrics", "Gauges and counters for Prometheus.", ""), Needs::Admin,
             show_metrics},
    Endpoint{api::get("/openapi.json", "This document.", "Document"), Needs::Infer, show_document},
};

http::Task<Status> run_endpoint(std::shared_ptr<const RouteParts> parts, const Endpoint& endpoint,
                                const http::Request& request, http::Responder& responder) {
  Caller caller;
  if (endpoint.needs != Needs::Nothing) {
    const fleet::Scope scope = endpoint.needs == Needs::Admin  ? fleet::Scope::Admin
                               : endpoint.needs == Needs::Join ? fleet::Scope::Join
                                                               : fleet::Scope::Infer;
    Result<Caller> found = parts->keys.authorize(request, scope);
    if (!found.ok()) {
      if (parts->audit != nullptr) {
        parts->audit->note_refusal(short_name(request), request.path,
                                   contract::error_row(found.error().code).wire);
      }
      co_return found.error();
    }
    caller = found.take();
    if (!parts->core.is_recovered())
      co_return Error{ErrorCode::Unavailable, "the orchestrator is starting; try again"};
  }
  if (auto refusal = api::refuse_parameters(endpoint.text, request))
    co_return co_await responder.send(std::move(*refusal));
  co_return co_await endpoint.task(*parts, std::move(caller), request, responder);
}

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

const std::string& path_param(const http::Request& request, const std::string& name) {
  return request.path_params.at(name);
}

http::Task<Status> write_down(const RouteParts& parts, Caller caller, std::string action,
                              std::string object, std::string detail) {
  if (parts.audit == nullptr) co_return ok_status();
  const auto act = std::make_shared<audit::Act>();
  act->actor = caller.key.value == 0 ? std::string("local")
                                     : "key:" + fleet::text(caller.key) + " " + caller.name;
  act->action = std::move(action);
  act->object = std::move(object);
  act->detail = std::move(detail);
  std::function<Result<bool>()> write = [audit = parts.audit, act]() -> Result<bool> {
    if (Status written = audit->append(*act); !written.ok()) return written.error();
    return true;
  };
  const Result<bool> written = co_await parts.threads.run(std::move(write));
  if (!written.ok()) co_return written.error().in("it is done, but not in the audit log");
  co_return ok_status();
}

http::Response reply_error(const fleet::Reply& reply, const http::Request& request) {
  http::Response response = api::error_response(reply.status.error(), request.correlation_id);
  if (reply.retry_after_ms > 0) {
    response.headers.set(
        "Retry-After",
        std::to_string(static_cast<std::int64_t>(std::ceil(reply.retry_after_ms / 1000))));
  }
  return response;
}

http::Router make_router(const RouteParts& parts) {
  const auto shared = std::make_shared<const RouteParts>(parts);
  http::Router router;
  for (const Endpoint& endpoint : kEndpoints) {
    http::RouteOptions options;
    const bool is_openai = endpoint.text.error_schema == api::kOpenAiError;
    const bool is_task = endpoint.task == submit_task || is_openai;
    if (is_openai) options.render_error = api::render_openai_error;
    if (endpoint.needs != Needs::Nothing)
      options.max_body_bytes = is_task ? kTaskBytesMax : kOtherBytesMax;
    router.add(endpoint.text.method, endpoint.text.path,
               http::Handler(
                   [shared, &endpoint](const http::Request& request, http::Responder& responder) {
                     return run_endpoint(shared, endpoint, request, responder);
                   }),
               std::move(options));
  }
  add_web_files(router);
  api::answer_openai_errors(router);
  return router;
}

std::vector<std::string> paths_without_auth() {
  std::vector<std::string> paths = {std::string(kHealthPath)};
  for (const WebFile& file : web_files()) paths.emplace_back(file.path);
  return paths;
}

json::Object openapi_document() {
  api::SchemaTable table;
  table.answer<contract::FleetHealth>("Health");
  table.answer<contract::ShutdownAnswer>("ShutdownAnswer");
  table.request<contract::HostRequest>("HostRequest");
  table.request<contract::KeyRequest>("KeyRequest");
  table.request<contract::JoinRequest>("JoinRequest");
  table.answer<contract::JoinAnswer>("JoinAnswer");
  table.request<contract::BackupRequest>("BackupRequest");
  table.answer<contract::BackupAnswer>("Backup");
  table.answer<contract::TaskAccepted>("TaskAccepted");
  table.answer<contract::TaskStopped>("TaskStopped");
  table.answer<contract::TaskPage>("TaskPage");
  table.answer<contract::TaskView>("Task");
  table.answer<contract::WhyView>("Why");
  table.answer<contract::FleetStatus>("FleetStatus");
  table.answer<contract::HostList>("HostList");
  table.answer<contract::HostView>("Host");
  table.answer<contract::PoolList>("PoolList");
  table.answer<contract::FleetModelList>("FleetModelList");
  table.answer<contract::FleetWorkerList>("FleetWorkerList");
  table.answer<contract::KeyList>("KeyList");
  table.answer<contract::KeyView>("Key");
  json::Object& schemas = table.schemas;
  openai::add_schemas(schemas);
  schemas["TaskRequest"] =
      contract::described_schema<contract::TaskOptions>(SchemaOf::Request, /*is_open=*/true);
  return api::make_document(
      {.title = "llama-orch orchestrator",
       .description = "Jobs, hosts, models, workers and keys of a fleet of llama-orch pools.",
       .endpoints = api::texts_of(endpoints()),
       .schemas = std::move(schemas)});
}

}  // namespace llorch::orchestrator
