// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to orchestrator/.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/answers.h"
#include "api/openapi.h"
#include "contract/fields.h"
#include "http/router.h"
#include "orchestrator/routes.h"

namespace llorch::orchestrator {

// What answers, on the connection's strand; the caller's key has been looked at.
using Task = http::Task<Status> (*)(const RouteParts& parts, Caller caller,
                                    const http::Request& request, http::Responder& responder);

enum class Needs : std::uint8_t { Nothing, Infer, Admin };

struct Endpoint {
  api::EndpointText text;
  Needs needs = Needs::Infer;
  Task task = nullptr;
};

std::span<const Endpoint> endpoints();

// --- what handlers have in common ---

template <class T>
http::Response described_response(int status, const T& body) {
  return api::json_response(status, contract::write_fields(body));
}

// The request's body as an object; one that is empty counts as {}.
Result<json::Object> read_body(const http::Request& request);
// All failures of a request: the contract's envelope with each of them.
http::Response failures_response(const http::Request& request,
                                 std::vector<json::FieldError> errors);
const std::string& path_param(const http::Request& request, const std::string& name);
// The error of a reply, with its Retry-After.
http::Response reply_error(const fleet::Reply& reply, const http::Request& request);

// --- task_routes.cc ---
http::Task<Status> submit_task(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> list_tasks(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> show_task(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder);
http::Task<Status> stream_task(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> stop_task(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder);
http::Task<Status> explain_task(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder);

// --- openai_routes.cc ---
http::Task<Status> openai_models(const RouteParts& parts, Caller caller,
                                 const http::Request& request, http::Responder& responder);
http::Task<Status> openai_model(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder);
http::Task<Status> openai_completion(const RouteParts& parts, Caller caller,
                                     const http::Request& request, http::Responder& responder);
http::Task<Status> openai_chat(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> openai_embedding(const RouteParts& parts, Caller caller,
                                    const http::Request& request, http::Responder& responder);

// --- admin_routes.cc ---
http::Task<Status> show_hosts(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> show_pools(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> show_host(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder);
http::Task<Status> raise_host(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> lower_host(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> show_models(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> show_workers(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder);
http::Task<Status> show_status(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> show_health(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> show_metrics(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder);
http::Task<Status> list_keys(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder);
http::Task<Status> add_key(const RouteParts& parts, Caller caller, const http::Request& request,
                           http::Responder& responder);
http::Task<Status> revoke_key(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> back_up(const RouteParts& parts, Caller caller, const http::Request& request,
                           http::Responder& responder);
http::Task<Status> shut_down(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder);

}  // namespace llorch::orchestrator
