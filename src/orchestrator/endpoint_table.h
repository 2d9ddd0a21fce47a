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
using Handler = http::Task<Status>(const RouteParts& parts, Caller caller,
                                   const http::Request& request, http::Responder& responder);

enum class Needs : std::uint8_t { Nothing, Infer, Admin, Join };

struct Endpoint {
  api::EndpointText text;
  Needs needs = Needs::Infer;
  Handler* task = nullptr;
};

std::span<const Endpoint> endpoints();

// --- what handlers have in common ---

template <class T>
http::Response described_response(int status, const T& body) {
  return api::json_response(status, contract::write_fields(body));
}

using api::failures_response;
using api::read_body;
const std::string& path_param(const http::Request& request, const std::string& name);
// Writes down in the audit log what somebody did; to be answered only once that is on the disk.
http::Task<Status> write_down(const RouteParts& parts, Caller caller, std::string action,
                              std::string object, std::string detail = {});
// The error of a reply, with its Retry-After.
http::Response reply_error(const fleet::Reply& reply, const http::Request& request);

// --- task_routes.cc ---
Handler submit_task;
Handler list_tasks;
Handler show_task;
Handler stream_task;
Handler stop_task;
Handler explain_task;

// --- openai_routes.cc ---
Handler openai_models;
Handler openai_model;
Handler openai_completion;
Handler openai_chat;
Handler openai_embedding;

// --- join_routes.cc ---
Handler join_pool;
Handler connect_pool;
Handler leave_pool;
// Ends the connections of a pool that joined; nothing where there is none of that name.
void take_down_joined(const RouteParts& parts, const std::string& name);

// --- admin_routes.cc ---
Handler show_hosts;
Handler show_pools;
Handler show_host;
Handler raise_host;
Handler lower_host;
Handler show_models;
Handler show_workers;
Handler show_status;
Handler show_health;
Handler show_metrics;
Handler list_keys;
Handler add_key;
Handler revoke_key;
Handler back_up;
Handler shut_down;

}  // namespace llorch::orchestrator
