#include "pool/status_routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "api/metrics_text.h"
#include "base/terminal.h"
#include "base/version.h"
#include "contract/error_table.h"
#include "contract/worker_api.h"
#include "pool/bodies.h"

namespace llorch::pool {
namespace {

using contract::PoolWorkerState;
constexpr std::size_t kNumStates = 6;

std::array<std::int64_t, kNumStates> count_states(
    const std::vector<contract::PoolWorker>& workers) {
  std::array<std::int64_t, kNumStates> counts{};
  for (const contract::PoolWorker& worker : workers)
    ++counts[static_cast<std::size_t>(worker.state)];
  return counts;
}

double uptime_seconds(const Service& service) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - service.started).count();
}

// Why the pool cannot do its work; nothing: it can.
std::vector<std::string> find_problems(const Service& service, const Status& catalog) {
  std::vector<std::string> reasons;
  if (!catalog.ok()) reasons.push_back(catalog.error().message);
  const std::int64_t free = service.pool.host().disk_free_bytes;
  if (free < service.settings.disk_free_min_bytes) {
    reasons.push_back(fmt::format(
        "the disk of {} has {} free, expected at least {}: remove models (llorch-pool models rm)",
        service.pool.home.models().string(), base::human_bytes(free),
        base::human_bytes(service.settings.disk_free_min_bytes)));
  }
  return reasons;
}

void append_workers(std::string& out, const std::vector<contract::PoolWorker>& workers) {
  api::append_head(out, "llorch_pool_workers", "gauge", "Workers by state.");
  const auto counts = count_states(workers);
  for (std::size_t i = 0; i < kNumStates; ++i) {
    fmt::format_to(std::back_inserter(out), "llorch_pool_workers{{state=\"{}\"}} {}\n",
                   contract::name(static_cast<PoolWorkerState>(i)), counts[i]);
  }
  std::int64_t memory = 0;
  std::int64_t vram = 0;
  double tokens_per_second = 0;
  for (const contract::PoolWorker& worker : workers) {
    memory += worker.memory_bytes;
    vram += worker.vram_bytes;
    tokens_per_second += worker.tokens_per_second;
  }
  api::append_value(out, "llorch_pool_workers_memory_bytes", "gauge",
                    "Memory that the workers' processes hold.", memory);
  api::append_value(out, "llorch_pool_workers_vram_bytes", "gauge", "GPU memory that they hold.",
                    vram);
  api::append_value(out, "llorch_pool_tokens_per_second", "gauge",
                    "Tokens per second of all workers.", tokens_per_second);
}

void append_downloads(std::string& out, const Downloads& downloads) {
  std::int64_t queued = 0;
  std::int64_t running = 0;
  for (const DownloadStatus& status : downloads.list()) {
    queued += status.state == DownloadState::Queued ? 1 : 0;
    running += status.state == DownloadState::Running ? 1 : 0;
  }
  api::append_head(out, "llorch_pool_downloads", "gauge", "Downloads and verifications under way.");
  fmt::format_to(std::back_inserter(out),
                 "llorch_pool_downloads{{state=\"queued\"}} {}\n"
                 "llorch_pool_downloads{{state=\"running\"}} {}\n",
                 queued, running);
  const Downloads::Totals totals = downloads.totals();
  api::append_head(out, "llorch_pool_downloads_total", "counter",
                   "Downloads and verifications by how they ended.");
  fmt::format_to(std::back_inserter(out),
                 "llorch_pool_downloads_total{{outcome=\"done\"}} {}\n"
                 "llorch_pool_downloads_total{{outcome=\"failed\"}} {}\n"
                 "llorch_pool_downloads_total{{outcome=\"cancelled\"}} {}\n",
                 totals.done, totals.failed, totals.cancelled);
  api::append_value(out, "llorch_pool_downloaded_bytes_total", "counter",
                    "Bytes that downloads brought.", totals.bytes);
}

}  // namespace

Result<http::Response> show_health(const Service& service, const http::Request& request) {
  const auto catalog = service.catalog.read();
  const auto counts = count_states(service.pool.workers.workers());
  const auto count = [&counts](PoolWorkerState state) {
    return counts[static_cast<std::size_t>(state)];
  };
  Health health;
  if (catalog.ok()) health.pool_id = (*catalog)->pool_id;
  health.version = base::version();
  health.uptime_seconds = uptime_seconds(service);
  health.workers_ready = count(PoolWorkerState::Ready) + count(PoolWorkerState::Busy);
  health.workers_total =
      health.workers_ready + count(PoolWorkerState::Starting) + count(PoolWorkerState::Draining);
  health.workers_failed = count(PoolWorkerState::Failed);
  health.confinement = service.pool.confinement;
  health.reasons = find_problems(service, catalog.ok() ? ok_status() : Status(catalog.error()));
  const PoolPhase phase = service.pool.phase();
  if (phase != PoolPhase::Serving) {
    const bool is_starting = phase == PoolPhase::Starting;
    health.reasons.insert(
        health.reasons.begin(),
        fmt::format("the pool manager is {}", is_starting ? "starting" : "being stopped"));
    health.status = is_starting ? HealthState::Starting : HealthState::Draining;
  } else if (!health.reasons.empty()) {
    health.status = HealthState::Unhealthy;
  }
  if (health.reasons.empty()) return json_response(200, contract::write_fields(health));
  const Error error{ErrorCode::Unavailable, fmt::format("{}", fmt::join(health.reasons, "; "))};
  health.error = contract::ErrorDetail{contract::error_event(error), request.correlation_id, {}};
  http::Response response = json_response(503, contract::write_fields(health));
  response.headers.set("Retry-After", "1");
  return response;
}

Result<http::Response> show_metrics(const Service& service, const http::Request&) {
  std::string out;
  append_workers(out, service.pool.workers.workers());
  append_downloads(out, service.pool.downloads);
  if (const auto catalog = service.catalog.read(); catalog.ok()) {
    const auto& models = (*catalog)->models;
    api::append_value(out, "llorch_pool_models", "gauge", "Models in the catalog.", models.size());
    api::append_value(out, "llorch_pool_models_downloaded", "gauge", "Models that are here.",
                      std::count_if(models.begin(), models.end(),
                                    [](const auto& model) { return model.downloaded; }));
  }
  api::append_value(out, "llorch_pool_relays", "gauge", "Requests being relayed to workers.",
                    service.num_relays.load());
  api::append_value(out, "llorch_pool_relays_total", "counter", "Requests relayed to workers.",
                    service.relays_total.load());
  api::append_value(out, "llorch_pool_disk_free_bytes", "gauge", "Free where models live.",
                    service.pool.host().disk_free_bytes);
  api::append_value(out, "llorch_pool_uptime_seconds", "gauge", "Since the process started.",
                    uptime_seconds(service));
  api::append_head(out, "llorch_pool_build_info", "gauge", "What runs here.");
  fmt::format_to(std::back_inserter(out), "llorch_pool_build_info{{version=\"{}\"}} 1\n",
                 base::version());
  return http::Response(200, std::string(api::kMetricsType), std::move(out));
}

Result<http::Response> shut_down(const Service& service, const http::Request& request) {
  return answer_body<NoFields>(request, [&](NoFields) {
    service.pool.request_shutdown();
    return json_response(202, contract::write_fields(contract::ShutdownAnswer{}));
  });
}

Result<http::Response> show_document(const Service&, const http::Request&) {
  return json_response(200, openapi_document());
}

}  // namespace llorch::pool
