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

constexpr std::array kEndpoints = {
    Endpoint{api::get_health("State of the worker; never waits for the engine.", "HealthReport"),
             answer_health},
    Endpoint{{.method = Method::Post,
              .path = "/execute",
              .summary = "Generate text as a stream of events.",
              .request_schema = "ExecuteRequest",
              .stream_type = api::kSse},
             execute},
    Endpoint{api::send(Method::Post, "/cancel", "End a job soon. Idempotent.", "CancelRequest", 202,
                       "CancelAnswer"),
             answer_cancel},
    Endpoint{{.method = Method::Post,
              .path = "/shutdown",
              .summary = "Finish what runs, accept nothing more, exit.",
              .request_schema = "ShutdownRequest",
              .is_body_optional = true,
              .status = 202,
              .response_schema = "ShutdownAnswer"},
             answer_shutdown},
    Endpoint{api::get("/metrics", "Counters, gauges and histograms for Prometheus.", ""),
             answer_metrics},
    Endpoint{api::send(Method::Post, "/tokenize", "Text to token ids.", "TokenizeRequest", 200,
                       "TokenizeAnswer"),
             answer_tokenize},
    Endpoint{api::send(Method::Post, "/detokenize", "Token ids to text.", "DetokenizeRequest", 200,
                       "DetokenizeAnswer"),
             answer_detokenize},
    Endpoint{api::openai_models("The one model that is here."), list_models},
    Endpoint{api::openai_model("That model."), show_model},
    Endpoint{api::openai_completions("Continue a prompt."), answer_completion},
    Endpoint{
        api::openai_chat("Answer a conversation, in the form of the model's own chat template."),
        answer_chat},
    Endpoint{api::openai_embeddings("Vectors of length 1 for texts."), answer_embeddings},
    Endpoint{api::get("/openapi.json", "This document.", "Document"), answer_document},
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
    if (endpoint.text.error_schema == api::kOpenAiError)
      options.render_error = api::render_openai_error;
    if (endpoint.text.request_schema.empty()) {
      options.max_body_bytes = 0;
    } else if (std::holds_alternative<PlainTask>(endpoint.task)) {
      options.max_body_bytes = kPlainBodyBytes;
    }
    router.add(endpoint.text.method, endpoint.text.path,
               api::with_known_parameters(endpoint.text, make_handler(service, endpoint)),
               std::move(options));
  }
  api::answer_openai_errors(router);
  return router;
}

std::vector<std::string> paths_without_auth() {
  return {"/health"};
}

}  // namespace llorch::worker_http
