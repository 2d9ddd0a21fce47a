// Every endpoint once: the router is filled from this table and /openapi.json is written from it.
// Private to pool/.
#pragma once

#include <span>
#include <variant>

#include "api/openapi.h"
#include "http/router.h"
#include "pool/service.h"

namespace llorch::pool {

// Answered by routes that are not of this table (model_files.h).
struct ElsewhereTask {};

struct Endpoint {
  api::EndpointText text;
  std::variant<BlockingTask, StreamTask, ElsewhereTask> task;
};

std::span<const Endpoint> endpoints();

}  // namespace llorch::pool
