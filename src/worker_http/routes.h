// The worker's HTTP API: every endpoint on one InferenceBackend.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "http/message.h"
#include "http/router.h"
#include "openai/defaults.h"
#include "worker_http/backend.h"

namespace llorch::worker_http {

struct RouteSettings {
  std::chrono::milliseconds inference_timeout{300'000};  // from arrival to the last token
  // The longest that reading one request may take (JSON, template, tokenizer, grammar).
  std::chrono::milliseconds work_time{10'000};
  std::chrono::milliseconds keep_alive{10'000};  // the longest silence of a stream
  // Pieces of text that may wait for a slow reader before its request is cancelled.
  std::size_t max_waiting_pieces = 4096;
  std::size_t max_choices = openai::kChoicesMax;
  std::size_t max_embedding_inputs = 2048;  // of one request
};

// Handlers never block: whatever takes time in proportion to a request runs on threads of the
// router's own, whatever computes behind the backend. The backend outlives the
// server that the router is given to.
http::Router make_router(InferenceBackend& backend, const RouteSettings& settings);

// Answered without a token even where one is set: probes have none.
std::vector<std::string> paths_without_auth();

// The OpenAPI 3.1 document of this API, written from the tables that the parsers use.
json::Object openapi_document();

}  // namespace llorch::worker_http
