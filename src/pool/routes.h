// The pool's HTTP API: every endpoint on what stands behind it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/json.h"
#include "base/result.h"
#include "catalog/adopt.h"
#include "catalog/download.h"
#include "catalog/model_catalog.h"
#include "catalog/outdated.h"
#include "catalog/verify.h"
#include "contract/pool_info.h"
#include "http/message.h"
#include "http/router.h"
#include "http/work_threads.h"
#include "pool/downloads.h"
#include "pool/fence.h"
#include "pool/memory_plan.h"
#include "pool/speed_book.h"
#include "pool/state_board.h"
#include "pool/workers.h"

namespace llorch::pool {

class Joiner;

enum class PoolPhase : std::uint8_t { Starting, Serving, Draining };

// What the API works with. Everything referred to outlives the server that the router is given to;
// the functions may be called on any thread, several at a time, and may block.
struct PoolServices {
  base::Home home;
  Workers& workers;
  Downloads& downloads;
  http::WorkThreads& threads;  // where handlers block
  StateBoard& board;           // hears of every change of the workers
  Fence& fence;                // of relays; whoever owns it looks at it now and then
  SpeedBook& speeds;

  std::function<contract::HostInfo()> host;
  std::function<Result<std::vector<MemoryPlan>>(const contract::ModelEntry&, const PlanRequest&)>
      plan;
  std::function<Result<contract::ModelEntry>(const catalog::DownloadRequest&,
                                             const contract::OnDownloadEvent&, std::stop_token)>
      download;
  std::function<Result<catalog::VerifyReport>(const catalog::VerifyRequest&,
                                              const contract::OnDownloadEvent&, std::stop_token)>
      verify;
  std::function<Result<catalog::AdoptReport>(const catalog::AdoptRequest&)> adopt;
  // Whether the sources of these models have something newer.
  std::function<std::vector<catalog::RevisionCheck>(const std::vector<contract::ModelEntry>&)>
      check_revisions;
  // Asks the process to drain, stop its workers and end; returns at once.
  std::function<void()> request_shutdown;
  std::function<PoolPhase()> phase;
  // What keeps workers from what is not theirs, and what the kernel lacks for it.
  std::string confinement;
  std::vector<std::string> labels;  // of this host, as its owner gave them
  Joiner* joiner = nullptr;         // null: this pool joins no fleet
  // Hears of every request that is not a probe (/health, /metrics), before it is answered.
  std::function<void()> on_use;
};

struct RouteSettings {
  std::chrono::milliseconds keep_alive{10'000};    // the longest silence of a stream
  std::chrono::milliseconds follow_interval{250};  // how often a followed log is looked at
  std::chrono::milliseconds event_interval{100};   // the least time between a download's events
  std::size_t max_followers = 32;                  // of logs
  std::int64_t disk_free_min_bytes = std::int64_t{256} << 20;  // below: not healthy
};

// Handlers never block an io thread.
http::Router make_router(PoolServices services, const RouteSettings& settings = {});

// The router of the endpoint that workers report to, for a server of its own on loopback.
http::Router make_callback_router(Workers& workers, http::WorkThreads& threads);

// Answered without a token even where one is set: probes have none, and neither have workers, whose
// callback is taken from loopback only.
std::vector<std::string> paths_without_auth();

// The OpenAPI 3.1 document of this API.
json::Object openapi_document();

}  // namespace llorch::pool
