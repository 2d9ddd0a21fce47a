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

http::Task<Status> send_document(std::shared_ptr<const std::string> document,
                                 http::Responder& responder) {
  http::Response response(200, "application/json", *document);
  co_return co_await responder.send(std::move(response));
}

http::Handler document_handler(const ServicePtr&) {
  const auto document = std::make_shared<const std::string>(json::serialize(openapi_document()));
  return [document](const http::Request&, http::Responder& responder) {
    return send_document(document, responder);
  };
}

constexpr std::string_view kSse = "text/event-stream";

constexpr std::array kEndpoints = {
    Endpoint{Method::Get, "/health", "State of the worker; never waits for the engine.",
             health_handler, nullptr, "", 200, "HealthReport", "", false},
    Endpoint{Method::Post, "/execute", "Generate text as a stream of events.", execute_handler,
             execute_fields, "ExecuteRequest", 200, "", kSse, false},
    Endpoint{Method::Post, "/cancel", "End a job soon. Idempotent.", cancel_handler, cancel_fields,
             "CancelRequest", 202, "CancelAnswer", "", false},
    Endpoint{Method::Post, "/shutdown", "Finish what runs, accept nothing more, exit.",
             shutdown_handler, nullptr, "", 202, "ShutdownAnswer", "", false},
    Endpoint{Method::Get, "/metrics", "Counters, gauges and histograms for Prometheus.",
             metrics_handler, nullptr, "", 200, "", "", false},
    Endpoint{Method::Post, "/tokenize", "Text to token ids.", tokenize_handler, tokenize_fields,
             "TokenizeRequest", 200, "TokenizeAnswer", "", false},
    Endpoint{Method::Post, "/detokenize", "Token ids to text.", detokenize_handler,
             detokenize_fields, "DetokenizeRequest", 200, "DetokenizeAnswer", "", false},
    Endpoint{Method::Get, "/v1/models", "The one model that is here.", models_handler, nullptr, "",
             200, "ModelList", "", true},
    Endpoint{Method::Get, "/v1/models/{model}", "That model.", model_handler, nullptr, "", 200,
             "Model", "", true},
    Endpoint{Method::Post, "/v1/completions", "Continue a prompt.", completions_handler,
             completion_fields, "CompletionRequest", 200, "Completion", kSse, true},
    Endpoint{Method::Post, "/v1/chat/completions",
             "Answer a conversation, in the form of the model's own chat template.", chat_handler,
             chat_fields, "ChatCompletionRequest", 200, "ChatCompletion", kSse, true},
    Endpoint{Method::Post, "/v1/embeddings", "Vectors of length 1 for texts.", embeddings_handler,
             embedding_fields, "EmbeddingRequest", 200, "EmbeddingList", "", true},
    Endpoint{Method::Get, "/openapi.json", "This document.", document_handler, nullptr, "", 200,
             "Document", "", false},
};

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

http::Router make_router(InferenceBackend& backend, const RouteSettings& settings) {
  const auto service =
      std::make_shared<const Service>(Service{backend, std::make_shared<Metrics>(), settings});
  http::Router router;
  for (const Endpoint& endpoint : kEndpoints) {
    http::RouteOptions options;
    if (endpoint.openai) options.render_error = render_openai_error;
    router.add(endpoint.method, endpoint.path, endpoint.make_handler(service), std::move(options));
  }
  http::RouteOptions openai;
  openai.render_error = render_openai_error;
  router.answer_below("/v1", std::move(openai));
  return router;
}

std::vector<std::string> paths_without_auth() {
  return {"/health"};
}

}  // namespace llorch::worker_http
