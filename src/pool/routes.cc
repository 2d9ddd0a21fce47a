#include "pool/routes.h"

#include <array>
#include <memory>
#include <utility>

#include "contract/worker_info.h"
#include "pool/bodies.h"
#include "pool/download_routes.h"
#include "pool/endpoint_table.h"
#include "pool/join_routes.h"
#include "pool/leftover_routes.h"
#include "pool/model_files.h"
#include "pool/model_routes.h"
#include "pool/relay.h"
#include "pool/service.h"
#include "pool/state_routes.h"
#include "pool/status_routes.h"
#include "pool/worker_routes.h"

namespace llorch::pool {
namespace {

using http::Method;

constexpr std::string_view kHealthPath = "/health";
constexpr std::string_view kReadyPath = "/v2/internal/workers/ready";
constexpr std::size_t kBodyBytesMax = std::size_t{1} << 20;
constexpr std::size_t kReadyBytesMax = 16 * 1024;  // heard without a token; has a path in it

// Everything below a worker's api, whatever it is to the worker.
constexpr std::string_view kRelayPath = "/v2/workers/{id}/api/{path}";
constexpr std::size_t kRelayBodyBytesMax = std::size_t{32} << 20;  // workers say what they take
constexpr Endpoint relay(Method method) {
  return {{.method = method,
           .path = kRelayPath,
           .summary = "The worker's own API: any request to it, and its answer as it comes.",
           .takes_any_query = true,
           .stream_type = api::kSse},
          relay_to_worker};
}

constexpr std::array kEndpoints = {
    Endpoint{api::get_health("Whether the pool can do its work, and why not.", "Health"),
             show_health},
    Endpoint{
        api::get("/v2/state",
                 "Everything about this pool in one answer; with since and wait_ms as soon as the "
                 "revision is another one.",
                 "State", api::query_of<StateQuery>),
        show_state},
    Endpoint{api::get("/v2/workers", "Every worker of this host.", "WorkerList"), list_workers},
    Endpoint{
        api::send(Method::Post, "/v2/workers/start", "Start a worker, if its memory plan fits.",
                  "StartWorkerRequest", 202, "Worker"),
        start_worker},
    Endpoint{api::send(Method::Post, "/v2/workers/stop", "Drain and stop a worker. Idempotent.",
                       "StopWorkerRequest", 202, "Worker"),
             stop_worker},
    Endpoint{api::get("/v2/workers/{id}", "One worker.", "Worker"), show_worker},
    Endpoint{api::send(Method::Post, "/v2/workers/{id}/restart",
                       "Stop a worker and start it again with what it was started with.", "", 202,
                       "Worker"),
             restart_worker},
    Endpoint{{.path = "/v2/workers/{id}/logs",
              .summary = "The last lines of a worker's log, and with follow what comes after them.",
              .query = api::query_of<LogQuery>,
              .stream_type = api::kSse},
             send_worker_log},
    relay(Method::Get),
    relay(Method::Post),
    relay(Method::Put),
    relay(Method::Patch),
    relay(Method::Delete),
    Endpoint{{.method = Method::Post,
              .path = kReadyPath,
              .summary = "A worker of this host is ready.",
              .request_schema = "ReadyCallback",
              .required_header = contract::kWorkerMarkHeader,
              .response_schema = "Ok"},
             take_ready_callback},
    Endpoint{
        api::get("/v2/models", "The models of the catalog.", "ModelList", api::query_of<ListQuery>),
        list_models},
    Endpoint{
        api::get("/v2/outdated", "Which downloaded models have a newer revision at their source.",
                 "RevisionList"),
        list_outdated},
    Endpoint{api::send(Method::Post, "/v2/models", "Register a model.", "RegisterModelRequest", 201,
                       "Model"),
             register_model},
    Endpoint{api::get("/v2/models/{id}", "One model.", "Model"), show_model},
    Endpoint{
        api::send(Method::Patch, "/v2/models/{id}", "Change what the catalog says about a model.",
                  "UpdateModelRequest", 200, "Model"),
        update_model},
    Endpoint{
        {.method = Method::Delete,
         .path = "/v2/models/{id}",
         .summary =
             "Take a model out of the catalog, with files=true also its files below our folder.",
         .query = api::query_of<RemoveQuery>,
         .response_schema = "Model"},
        remove_model},
    Endpoint{api::send(Method::Post, "/v2/models/{id}/download", "Fetch a model in the background.",
                       "DownloadRequest", 202, "DownloadAccepted"),
             start_download},
    Endpoint{api::send(Method::Post, "/v2/models/{id}/verify",
                       "Read every byte of a model and compare its hashes, in the background.",
                       "VerifyRequest", 202, "DownloadAccepted"),
             start_verify},
    Endpoint{{.path = "/v2/models/{id}/plan",
              .summary = "What a worker would need, and whether it fits.",
              .query = api::query_of<PlanRequest>,
              .response_schema = "Plans"},
             plan_model},
    Endpoint{
        {.path = "/v2/models/{id}/manifest",
         .summary = "A verified model's files with the hashes of their chunks, for neighbours.",
         .response_schema = "Manifest"},
        ElsewhereTask{}},
    Endpoint{{.path = "/v2/models/{id}/files/{n}",
              .summary = "The bytes of the n-th file of the manifest, whole or one range.",
              .stream_type = "application/octet-stream"},
             ElsewhereTask{}},
    Endpoint{api::get("/v2/downloads", "What is being fetched or verified, and what became of it.",
                      "DownloadList"),
             list_downloads},
    Endpoint{
        {.method = Method::Post,
         .path = "/v2/downloads",
         .summary = "Fetch a model in the background; without an id it gets one after its source.",
         .request_schema = "NamedDownloadRequest",
         .status = 202,
         .response_schema = "DownloadAccepted"},
        start_named_download},
    Endpoint{api::get("/v2/downloads/{id}", "One download or verification.", "Download"),
             show_download},
    Endpoint{
        {.path = "/v2/downloads/{id}/events",
         .summary = "The state now, every change after it, and then exactly one of done and error.",
         .stream_type = api::kSse},
        stream_download},
    Endpoint{api::send(Method::Delete, "/v2/downloads/{id}",
                       "Cancel. What has come is kept. Idempotent.", "", 202, "Download"),
             cancel_download},
    Endpoint{
        api::get("/v2/leftovers", "What downloads left behind and nothing uses.", "LeftoverList"),
        list_leftovers},
    Endpoint{api::send(Method::Delete, "/v2/leftovers", "Remove what downloads left behind.", "",
                       200, "LeftoverList"),
             remove_leftovers},
    Endpoint{api::send(Method::Post, "/v2/models/adopt",
                       "Register models of other programs' caches where they lie.", "AdoptRequest",
                       200, "AdoptReport"),
             adopt_models},
    Endpoint{api::get("/v2/join", "Which fleet this pool has joined by itself.", "PoolJoinState"),
             show_join},
    Endpoint{api::send(Method::Post, "/v2/join",
                       "Join a fleet that cannot reach this pool: it opens the connections.",
                       "PoolJoinRequest", 200, "PoolJoinState"),
             join_fleet},
    Endpoint{api::send(Method::Delete, "/v2/join", "Leave it.", "", 200, "PoolJoinState"),
             leave_fleet},
    Endpoint{api::send(Method::Post, "/v2/shutdown",
                       "Drain and stop every worker, then the daemon.", "", 202, "ShutdownAnswer"),
             shut_down},
    Endpoint{api::get("/metrics", "Gauges and counters for Prometheus.", ""), show_metrics},
    Endpoint{api::get("/openapi.json", "This document.", "Document"), show_document},
};

http::Handler make_handler(const ServicePtr& service, const Endpoint& endpoint) {
  if (const BlockingTask* blocking = std::get_if<BlockingTask>(&endpoint.task)) {
    return [service, task = *blocking](const http::Request& request, http::Responder& responder) {
      return run_blocking(service, task, request, responder);
    };
  }
  return [service, task = std::get<StreamTask>(endpoint.task)](const http::Request& request,
                                                               http::Responder& responder) {
    return task(service, request, responder);
  };
}

// Tells whoever wants to know whether the pool is in use.
http::Handler noticed(const ServicePtr& service, http::Handler handler) {
  return [service, handler = std::move(handler)](const http::Request& request,
                                                 http::Responder& responder) {
    if (service->pool.on_use) service->pool.on_use();
    return handler(request, responder);
  };
}

http::Task<Status> answer_callback(Workers& workers, http::WorkThreads& threads,
                                   const http::Request& request, http::Responder& responder) {
  std::function<Result<http::Response>()> work = [&workers, request] {
    return answer_ready(workers, request);
  };
  Result<http::Response> response = co_await threads.run(std::move(work));
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

http::Router make_router(PoolServices services, const RouteSettings& settings) {
  const auto service = std::make_shared<const Service>(std::move(services), settings);
  http::Router router;
  for (const Endpoint& endpoint : kEndpoints) {
    if (std::holds_alternative<ElsewhereTask>(endpoint.task)) continue;
    http::RouteOptions options;
    if (endpoint.text.path == kReadyPath) {
      options.max_body_bytes = kReadyBytesMax;
    } else if (endpoint.text.path == kRelayPath) {
      options.max_body_bytes = kRelayBodyBytesMax;
      options.takes_rest = true;
    } else if (endpoint.text.path != kHealthPath) {
      options.max_body_bytes = kBodyBytesMax;
    }
    const bool is_probe = endpoint.text.path == "/health" || endpoint.text.path == "/metrics";
    http::Handler handler =
        api::with_known_parameters(endpoint.text, make_handler(service, endpoint));
    if (!is_probe) handler = noticed(service, std::move(handler));
    router.add(endpoint.text.method, endpoint.text.path, std::move(handler), std::move(options));
  }
  add_model_file_routes(router, service->catalog.catalog(), service->pool.home.chunks());
  return router;
}

http::Router make_callback_router(Workers& workers, http::WorkThreads& threads) {
  http::Router router;
  router.add(
      http::Method::Post, kReadyPath,
      http::Handler([&workers, &threads](const http::Request& request, http::Responder& responder) {
        return answer_callback(workers, threads, request, responder);
      }),
      {.max_body_bytes = kReadyBytesMax, .render_error = {}});
  return router;
}

std::vector<std::string> paths_without_auth() {
  return {std::string(kHealthPath), std::string(kReadyPath)};
}

}  // namespace llorch::pool
