#include "pool/routes.h"

#include <array>
#include <memory>
#include <utility>

#include "pool/download_routes.h"
#include "pool/endpoint_table.h"
#include "pool/leftover_routes.h"
#include "pool/model_files.h"
#include "pool/model_routes.h"
#include "pool/service.h"
#include "pool/status_routes.h"
#include "pool/worker_routes.h"

namespace llorch::pool {
namespace {

using http::Method;

constexpr std::string_view kSse = "text/event-stream";
constexpr std::string_view kHealthPath = "/health";
constexpr std::string_view kReadyPath = "/v2/internal/workers/ready";
constexpr std::size_t kBodyBytesMax = std::size_t{1} << 20;
constexpr std::size_t kReadyBytesMax = 16 * 1024;  // heard without a token; has a path in it

constexpr std::array kEndpoints = {
    Endpoint{Method::Get, kHealthPath, "Whether the pool can do its work, and why not.",
             show_health, "", "", 200, "Health", ""},
    Endpoint{Method::Get, "/v2/state", "Host, models, workers and downloads in one answer.",
             show_state, "", "", 200, "State", ""},
    Endpoint{Method::Get, "/v2/workers", "Every worker of this host.", list_workers, "", "", 200,
             "WorkerList", ""},
    Endpoint{Method::Post, "/v2/workers/start", "Start a worker, if its memory plan fits.",
             start_worker, "StartWorkerRequest", "", 202, "Worker", ""},
    Endpoint{Method::Post, "/v2/workers/stop", "Drain and stop a worker. Idempotent.", stop_worker,
             "StopWorkerRequest", "", 202, "Worker", ""},
    Endpoint{Method::Get, "/v2/workers/{id}", "One worker.", show_worker, "", "", 200, "Worker",
             ""},
    Endpoint{Method::Post, "/v2/workers/{id}/restart",
             "Stop a worker and start it again with what it was started with.", restart_worker, "",
             "", 202, "Worker", ""},
    Endpoint{
        Method::Get, "/v2/workers/{id}/logs",
        "The last lines of a worker's log, and with follow what comes after them.", send_worker_log,
        "",
        R"({"lines":{"type":"integer","minimum":0,"maximum":10000},"follow":{"type":"boolean"}})",
        200, "", kSse},
    Endpoint{Method::Post, kReadyPath, "A worker of this host is ready.", take_ready_callback,
             "ReadyCallback", "", 200, "Ok", ""},
    Endpoint{Method::Get, "/v2/models", "The models of the catalog.", list_models, "",
             R"({"known":{"type":"boolean"}})", 200, "ModelList", ""},
    Endpoint{Method::Get, "/v2/outdated",
             "Which downloaded models have a newer revision at their source.", list_outdated, "",
             "", 200, "RevisionList", ""},
    Endpoint{Method::Post, "/v2/models", "Register a model.", register_model,
             "RegisterModelRequest", "", 201, "Model", ""},
    Endpoint{Method::Get, "/v2/models/{id}", "One model.", show_model, "", "", 200, "Model", ""},
    Endpoint{Method::Patch, "/v2/models/{id}", "Change what the catalog says about a model.",
             update_model, "UpdateModelRequest", "", 200, "Model", ""},
    Endpoint{Method::Delete, "/v2/models/{id}",
             "Take a model out of the catalog, with files=true also its files below our folder.",
             remove_model, "", R"({"files":{"type":"boolean"}})", 200, "Model", ""},
    Endpoint{Method::Post, "/v2/models/{id}/download", "Fetch a model in the background.",
             start_download, "DownloadRequest", "", 202, "DownloadAccepted", ""},
    Endpoint{Method::Post, "/v2/models/{id}/verify",
             "Read every byte of a model and compare its hashes, in the background.", start_verify,
             "VerifyRequest", "", 202, "DownloadAccepted", ""},
    Endpoint{
        Method::Get, "/v2/models/{id}/plan", "What a worker would need, and whether it fits.",
        plan_model, "",
        R"({"backend":{"enum":["cpu","cuda"]},"gpu":{"type":"integer","minimum":0,"maximum":255},
"ctx":{"type":"integer","minimum":1,"maximum":16777216},"slots":{"type":"integer","minimum":1,"maximum":256},
"kv":{"enum":["f16","q8_0"]}})",
        200, "Plans", ""},
    Endpoint{Method::Get, "/v2/models/{id}/manifest",
             "A verified model's files with the hashes of their chunks, for neighbours.",
             ElsewhereTask{}, "", "", 200, "Manifest", ""},
    Endpoint{Method::Get, "/v2/models/{id}/files/{n}",
             "The bytes of the n-th file of the manifest, whole or one range.", ElsewhereTask{}, "",
             "", 200, "", "application/octet-stream"},
    Endpoint{Method::Get, "/v2/downloads",
             "What is being fetched or verified, and what became of it.", list_downloads, "", "",
             200, "DownloadList", ""},
    Endpoint{Method::Post, "/v2/downloads",
             "Fetch a model in the background; without an id it gets one after its source.",
             start_named_download, "NamedDownloadRequest", "", 202, "DownloadAccepted", ""},
    Endpoint{Method::Get, "/v2/downloads/{id}", "One download or verification.", show_download, "",
             "", 200, "Download", ""},
    Endpoint{Method::Get, "/v2/downloads/{id}/events",
             "The state now, every change after it, and then exactly one of done and error.",
             stream_download, "", "", 200, "", kSse},
    Endpoint{Method::Delete, "/v2/downloads/{id}", "Cancel. What has come is kept. Idempotent.",
             cancel_download, "", "", 202, "Download", ""},
    Endpoint{Method::Get, "/v2/leftovers", "What downloads left behind and nothing uses.",
             list_leftovers, "", "", 200, "LeftoverList", ""},
    Endpoint{Method::Delete, "/v2/leftovers", "Remove what downloads left behind.",
             remove_leftovers, "", "", 200, "LeftoverList", ""},
    Endpoint{Method::Post, "/v2/models/adopt",
             "Register models of other programs' caches where they lie.", adopt_models,
             "AdoptRequest", "", 200, "AdoptReport", ""},
    Endpoint{Method::Post, "/v2/shutdown", "Drain and stop every worker, then the daemon.",
             shut_down, "", "", 202, "ShutdownAnswer", ""},
    Endpoint{Method::Get, "/metrics", "Gauges and counters for Prometheus.", show_metrics, "", "",
             200, "", ""},
    Endpoint{Method::Get, "/openapi.json", "This document.", show_document, "", "", 200, "Document",
             ""},
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
    if (endpoint.path == kReadyPath) {
      options.max_body_bytes = kReadyBytesMax;
    } else if (endpoint.path != kHealthPath) {
      options.max_body_bytes = kBodyBytesMax;
    }
    const bool is_probe = endpoint.path == "/health" || endpoint.path == "/metrics";
    http::Handler handler = make_handler(service, endpoint);
    if (!is_probe) handler = noticed(service, std::move(handler));
    router.add(endpoint.method, endpoint.path, std::move(handler), std::move(options));
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
