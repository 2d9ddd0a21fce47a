// The orchestrator's HTTP API: every endpoint on what stands behind it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "audit/audit_log.h"
#include "base/json.h"
#include "http/router.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/answer_book.h"
#include "orchestrator/joined_pools.h"
#include "orchestrator/keys.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/pools.h"
#include "orchestrator/relay.h"

namespace llorch::orchestrator {

// Everything referred to outlives the server that the router is given to.
struct RouteParts {
  Orchestrator& core;
  AnswerBook& answers;
  Relays& relays;
  Pools& pools;  // read on the owner's thread only
  KeyRing& keys;
  job_store::Store& store;
  http::WorkThreads& threads;        // where handlers block
  JoinedPools* joined = nullptr;     // null: no pool may join
  audit::AuditLog* audit = nullptr;  // null: nothing is written down

  std::function<void()> request_shutdown;
  std::function<bool()> is_draining;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

http::Router make_router(const RouteParts& parts);

// Answered without a key from anywhere.
std::vector<std::string> paths_without_auth();

// The OpenAPI 3.1 document of this API.
json::Object openapi_document();

}  // namespace llorch::orchestrator
