// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to pool/.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "http/router.h"
#include "pool/service.h"

namespace llorch::pool {

// Answered by routes that are not of this table (model_files.h).
struct ElsewhereTask {};

struct Endpoint {
  http::Method method;
  std::string_view path;
  std::string_view summary;
  std::variant<BlockingTask, StreamTask, ElsewhereTask> task;
  std::string_view request_schema;   // of the body, by its name in the document; empty: none
  std::string_view query;            // JSON Schemas of its parameters by name; empty: none
  int status;                        // of success
  std::string_view response_schema;  // of success; empty: text or a stream
  std::string_view stream_type;      // "text/event-stream" where it can answer so
};

std::span<const Endpoint> endpoints();

}  // namespace llorch::pool
