// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to worker_http/.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "http/router.h"
#include "worker_http/field_table.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

// What answers: a function on the io thread where the work is small whatever is sent, a function on
// a work thread where it grows with the request, or a coroutine that waits for more than one thing.
using PlainTask = http::Response (*)(const Service& service, const RequestText& request);
using WorkTask = http::Response (*)(const Service& service, const RequestText& request,
                                    const base::WorkLimit& limit);
using WaitingTask = http::Task<Status> (*)(ServicePtr service, const http::Request& request,
                                           http::Responder& responder);

struct Endpoint {
  http::Method method;
  std::string_view path;
  std::string_view summary;
  std::variant<PlainTask, WorkTask, WaitingTask> task;
  std::span<const FieldSpec> (*fields)();  // of the request's body; null: none
  std::string_view request_schema;         // its name in the document
  int status;                              // of success
  std::string_view response_schema;        // of success; empty: text
  std::string_view stream_type;            // "text/event-stream" where it can answer so
  bool openai;                             // OpenAI's error shape
};

std::span<const Endpoint> endpoints();

}  // namespace llorch::worker_http
