// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to worker_http/.
#pragma once

#include <span>
#include <variant>

#include "api/openapi.h"
#include "http/router.h"
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
  api::EndpointText text;
  std::variant<PlainTask, WorkTask, WaitingTask> task;
};

std::span<const Endpoint> endpoints();

}  // namespace llorch::worker_http
