// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to worker_http/.
#pragma once

#include <span>
#include <string_view>

#include "http/router.h"
#include "worker_http/field_table.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

struct Endpoint {
  http::Method method;
  std::string_view path;
  std::string_view summary;
  http::Handler (*make_handler)(const ServicePtr& service);
  std::span<const FieldSpec> (*fields)();  // of the request's body; null: none
  std::string_view request_schema;         // its name in the document
  int status;                              // of success
  std::string_view response_schema;        // of success; empty: text
  std::string_view stream_type;            // "text/event-stream" where it can answer so
  bool openai;                             // OpenAI's error shape
};

std::span<const Endpoint> endpoints();

}  // namespace llorch::worker_http
