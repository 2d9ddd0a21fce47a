#include "worker_http/routes.h"

#include <array>
#include <memory>
#include <utility>

#include "worker_http/answers.h"
#include "worker_http/endpoint_table.h"
#include "worker_http/openai_endpoints.h"
#include "worker_http/worker_endpoints.h"

namespace llorch::worker_http {
namespace {

using http::Method;

http::Response answer_document(const Service&, const RequestText&) {
  static const std::string document = json::serialize(openapi_document());
  return {200, "application/json", document};
}

http::Task<Status> send_plain(ServicePtr service, PlainTask task, const http::Request& request,
                              http::Responder& responder) {
  http::Response response = task(*service, text_of(request));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> send_worked(ServicePtr service, WorkTask task, const http::Request& request,
                               http::Responder& responder) {
  RequestWork work(service, request, responder);
  std::function<Result<http::Response>(const base::WorkLimit&)> answer =
      [&with = *service, task, text = text_of(request)](const base::WorkLimit& limit) {
        return Result<http::Response>(task(with, text, limit));
      };
  Result<http::Response> response = co_await work.read<http::Response>(std::move(answer));
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

http::Handler make_handler(const ServicePtr& service, const Endpoint& endpoint) {
  if (const PlainTask* plain = std::get_if<PlainTask>(&endpoint.task)) {
    return [service, task = *plain](const http::Request& request, http::Responder& responder) {
      return send_plain(service, task, request, responder);
    };
  }
  if (const WorkTask* worked = std::get_if<WorkTask>(&endpoint.task)) {
    return [service, task = *worked](const http::Request& request, http::Responder& responder) {
      return send_worked(service, task, request, responder);
    };
  }
  return [service, task = std::get<WaitingTask>(endpoint.task)](const http::Request& request,
                                                                http::Responder& responder) {
    return task(service, request, responder);
  };
}

// What is read on an io thread is small.
constexpr std::size_t kPlainBodyBytes = 4096;
constexpr std::string_view kSse = "text/event-stream";

constexpr std::array kEndpoints = {
    Endpoint{Method::Get, "/health", "State of the worker; never waits for the engine.",
             answer_health, nullptr, "", 200, "HealthReport", "", false},
    Endpoint{Method::Post, "/execute", "Generate text as a stream of events.", execute,
             execute_fields, "ExecuteRequest", 200, "", kSse, false},
    Endpoint{Method::Post, "/cancel", "End a job soon. Idempotent.", answer_cancel, cancel_fields,
             "CancelRequest", 202, "CancelAnswer", "", false},
    Endpoint{Method::Post, "/shutdown", "Finish what runs, accept nothing more, exit.",
             answer_shutdown, shutdown_fields, "ShutdownRequest", 202, "ShutdownAnswer", "", false},
    Endpoint{Method::Get, "/metrics", "Counters, gauges and histograms for Prometheus.",
             answer_metrics, nullptr, "", 200, "", "", false},
    Endpoint{Method::Post, "/tokenize", "Text to token ids.", answer_tokenize, tokenize_fields,
             "TokenizeRequest", 200, "TokenizeAnswer", "", false},
    Endpoint{Method::Post, "/detokenize", "Token ids to text.", answer_detokenize,
             detokenize_fields, "DetokenizeRequest", 200, "DetokenizeAnswer", "", false},
    Endpoint{Method::Get, "/v1/models", "The one model that is here.", list_models, nullptr, "",
             200, "ModelList", "", true},
    Endpoint{Method::Get, "/v1/models/{model}", "That model.", show_model, nullptr, "", 200,
             "Model", "", true},
    Endpoint{Method::Post, "/v1/completions", "Continue a prompt.", answer_completion,
             openai::completion_fields, "CompletionRequest", 200, "Completion", kSse, true},
    Endpoint{Method::Post, "/v1/chat/completions",
             "Answer a conversation, in the form of the model's own chat template.", answer_chat,
             openai::chat_fields, "ChatCompletionRequest", 200, "ChatCompletion", kSse, true},
    Endpoint{Method::Post, "/v1/embeddings", "Vectors of length 1 for texts.", answer_embeddings,
             openai::embedding_fields, "EmbeddingRequest", 200, "EmbeddingList", "", true},
    Endpoint{Method::Get, "/openapi.json", "This document.", answer_document, nullptr, "", 200,
             "Document", "", false},
};

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

http::Router make_router(InferenceBackend& backend, const RouteSettings& settings) {
  const auto service = std::make_shared<const Service>(backend, settings);
  http::Router router;
  for (const Endpoint& endpoint : kEndpoints) {
    http::RouteOptions options;
    if (endpoint.openai) options.render_error = api::render_openai_error;
    if (std::holds_alternative<PlainTask>(endpoint.task)) options.max_body_bytes = kPlainBodyBytes;
    router.add(endpoint.method, endpoint.path, make_handler(service, endpoint), std::move(options));
  }
  http::RouteOptions openai;
  openai.render_error = api::render_openai_error;
  router.answer_below("/v1", std::move(openai));
  return router;
}

std::vector<std::string> paths_without_auth() {
  return {"/health"};
}

}  // namespace llorch::worker_http
