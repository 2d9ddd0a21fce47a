// Loads: from an order to a worker that takes jobs.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "contract/download_event.h"
#include "contract/error_table.h"
#include "http/sse.h"
#include "http/url.h"
#include "orchestrator/pools_parts.h"
#include "pool_client/pool_client.h"

namespace llorch::orchestrator {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kProgressPause{1'000};
constexpr milliseconds kDetailsPatience{3'000};  // of a ready worker whose build is not known yet
constexpr std::string_view kUnknownBuild = "unknown";

// How far a download has come; nothing where the event does not say.
std::optional<LoadProgress> read_progress(std::string_view data) {
  const Result<json::Value> value = json::parse(data);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  const contract::DownloadEvent event = contract::read_download_event(value->get_object());
  LoadProgress progress;
  progress.stage = "fetching";
  if (event.bytes_total > 0) {
    progress.progress =
        static_cast<double>(event.bytes_done) / static_cast<double>(event.bytes_total);
  }
  progress.eta_ms = 1000 * event.seconds_left.value_or(0);
  return progress;
}

}  // namespace

void Pools::start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) {
  const std::optional<PoolAddress> pool = address_of(host);
  if (!pool) {
    orchestrator_.post(fleet::LoadEnded{
        .host = host,
        .load = plan.load,
        .error = Error{ErrorCode::Unavailable, "host " + host + " cannot be reached"}});
    return;
  }
  Row& row = rows_[host];
  const auto load = std::make_shared<Load>();
  load->host = host;
  load->plan = plan;
  load->pool = *pool;
  load->is_missing = std::find(row.downloaded.begin(), row.downloaded.end(), plan.model_name) ==
                     row.downloaded.end();
  load->tells_on_demand = row.tells_on_demand;
  load->known_before = row.workers;
  for (const fleet::WorkerId& worker : plan.first_stop) row.watch.note_own_stop(worker);
  load->progress = {.host = host, .model = plan.model};
  load->progress.stage = !plan.first_stop.empty() ? "making room"
                         : load->is_missing       ? "fetching"
                                                  : "loading";
  row.loads.push_back(load);
  io_.spawn([this, load] { return run_load(load); });
}

http::Task<void> Pools::run_load(LoadPtr load) {
  const auto worker = std::make_shared<Result<contract::PoolWorker>>(co_await perform_load(load));
  orchestrator_.run_on_owner([this, load, worker] { end_load(load, *worker); });
}

void Pools::end_load(const LoadPtr& load, const Result<contract::PoolWorker>& worker) {
  const auto found = rows_.find(load->host);
  if (found != rows_.end()) std::erase(found->second.loads, load);
  if (found != rows_.end() && worker.ok())
    found->second.watch.note_own_start(worker->id, worker->start);
  fleet::LoadEnded ended{.host = load->host, .load = load->plan.load};
  if (worker.ok()) {
    ended.worker = worker->id;
    ended.start = start_of(*worker);
    ended.seen = make_seen_worker(*worker, models_);
  } else {
    ended.error = worker.error();
    ended.was_accident = load->was_accident;
    pools_logger().warn(
        "a model could not be loaded",
        {{"host", load->host}, {"model", load->plan.model_name}, {"why", worker.error().message}});
  }
  orchestrator_.post(std::move(ended));
}

void Pools::note_progress(const LoadPtr& load, LoadProgress progress) {
  orchestrator_.run_on_owner([load, progress] { load->progress = progress; });
  orchestrator_.note_load(std::move(progress));
}

std::vector<contract::FleetLoad> Pools::loads() const {
  std::vector<contract::FleetLoad> loads;
  for (const auto& [host, row] : rows_) {
    for (const LoadPtr& load : row.loads) {
      contract::FleetLoad shown{host, load->plan.model_name, load->progress.stage, std::nullopt,
                                load->progress.eta_ms};
      if (load->progress.progress >= 0) shown.progress = load->progress.progress;
      loads.push_back(std::move(shown));
    }
    if (!row.poll || !row.poll->is_answering) continue;
    for (const contract::FleetLoad& download : row.downloads) {
      const bool is_ours =
          std::any_of(row.loads.begin(), row.loads.end(),
                      [&](const LoadPtr& load) { return load->plan.model_name == download.model; });
      if (!is_ours) loads.push_back(download);
    }
  }
  std::sort(loads.begin(), loads.end(), [](const auto& a, const auto& b) {
    return std::tie(a.host, a.model) < std::tie(b.host, b.model);
  });
  return loads;
}

http::Task<Result<contract::PoolWorker>> Pools::perform_load(LoadPtr load) {
  if (Status room = co_await make_room(load); !room.ok()) co_return room.error();
  if (load->is_missing) {
    if (Status fetched = co_await fetch_model(load); !fetched.ok()) co_return fetched.error();
  }
  contract::StartWorkerRequest wanted;
  wanted.backend = backend_of_device(load->plan.device);
  wanted.model = load->plan.model_name;
  wanted.on_demand = load->tells_on_demand;
  if (load->plan.device != kCpuDevice)
    wanted.gpu = static_cast<std::int32_t>(load->plan.device) - 1;
  http::ClientRequest request = make_request(http::Method::Post, load->pool, "/v2/workers/start");
  request.body = json::serialize(contract::to_json(wanted));
  request.total_timeout = milliseconds(60'000);  // it plans the memory first
  Result<json::Value> answer = co_await call(std::move(request));
  if (!answer.ok()) co_return answer.error();
  Result<contract::PoolWorker> worker = contract::parse_pool_worker(*answer);
  if (!worker.ok()) co_return worker.error();
  const std::string id = worker->id;
  orchestrator_.run_on_owner([load, id] { load->worker = id; });
  co_return co_await await_ready(load, id);
}

http::Task<Result<contract::PoolWorker>> Pools::await_ready(LoadPtr load, std::string id) {
  // How long a load may take is the pool's to say: it fails one that does not come up.
  auto next_told = Clock::now();
  std::optional<Clock::time_point> ready_at;
  int failures = 0;
  for (;;) {
    Result<json::Value> answer = co_await call(
        make_request(http::Method::Get, load->pool, "/v2/workers/" + http::percent_encode(id)));
    Result<contract::PoolWorker> worker = answer.ok()
                                              ? contract::parse_pool_worker(*answer)
                                              : Result<contract::PoolWorker>(answer.error());
    if (!worker.ok()) {
      const bool is_gone = worker.error().code == ErrorCode::NotFound;
      if (is_gone) {
        co_return Error{
            ErrorCode::Unavailable,
            fmt::format("the pool of {} no longer knows {}, which it was loading", load->host, id)};
      }
      if (++failures > 20) co_return worker.error();
    } else {
      failures = 0;
      switch (worker->state) {
        case contract::PoolWorkerState::Ready:
        case contract::PoolWorkerState::Busy:
          if (!ready_at) ready_at = Clock::now();
          if (worker->build != kUnknownBuild || Clock::now() - *ready_at >= kDetailsPatience)
            co_return worker.take();
          break;
        case contract::PoolWorkerState::Starting:
          break;
        default:
          orchestrator_.run_on_owner(
              [load, was = was_accident(*worker)] { load->was_accident = was; });
          co_return Error{ErrorCode::LoadFailed, pool_client::describe_failure(*worker)};
      }
      if (Clock::now() >= next_told) {
        next_told = Clock::now() + kProgressPause;
        note_progress(load, {.host = load->host,
                             .model = load->plan.model,
                             .stage = "loading",
                             .progress = worker->load_progress});
      }
    }
    co_await pause_for(options_.look_pause);
  }
}

http::Task<Status> Pools::make_room(LoadPtr load) {
  for (const fleet::WorkerId& worker : load->plan.first_stop) {
    co_await run_stop(load->pool, worker);
    const auto until = Clock::now() + options_.stop_patience;
    for (;;) {
      Result<json::Value> answer = co_await call(make_request(
          http::Method::Get, load->pool, "/v2/workers/" + http::percent_encode(worker)));
      if (!answer.ok() && answer.error().code == ErrorCode::NotFound) break;
      Result<contract::PoolWorker> seen = answer.ok()
                                              ? contract::parse_pool_worker(*answer)
                                              : Result<contract::PoolWorker>(answer.error());
      const bool has_ended = seen.ok() && (seen->state == contract::PoolWorkerState::Stopped ||
                                           seen->state == contract::PoolWorkerState::Failed);
      if (has_ended) break;
      if (Clock::now() >= until) {
        co_return Error{ErrorCode::Unavailable,
                        fmt::format("{} was to make room and has not ended within {} s", worker,
                                    options_.stop_patience.count() / 1000)};
      }
      co_await pause_for(options_.look_pause);
    }
  }
  co_return ok_status();
}

// Fetches it and tells everybody who waits how far that is.
http::Task<Status> Pools::fetch_model(LoadPtr load) {
  http::ClientRequest request =
      make_request(http::Method::Post, load->pool,
                   "/v2/models/" + http::percent_encode(load->plan.model_name) + "/download");
  request.body = "{}";
  Result<json::Value> accepted = co_await call(std::move(request));
  if (!accepted.ok()) co_return accepted.error();
  const json::Value* id =
      accepted->is_object() ? accepted->get_object().if_contains("download_id") : nullptr;
  if (id == nullptr || !id->is_string())
    co_return Error{ErrorCode::Internal, "the pool did not name the download"};
  http::ClientRequest open = make_request(
      http::Method::Get, load->pool,
      "/v2/downloads/" + http::percent_encode(std::string_view(id->get_string())) + "/events");
  open.total_timeout = milliseconds(0);
  Result<http::ResponseStream> stream = co_await client_.async_open(std::move(open));
  if (!stream.ok()) co_return stream.error();
  http::SseReader reader;
  std::vector<http::SseEvent> events;
  auto next_told = Clock::now();
  for (;;) {
    Result<std::string> bytes = co_await stream->read_some();
    if (!bytes.ok()) co_return bytes.error();
    if (bytes->empty())
      co_return Error{ErrorCode::Unavailable, "the pool ended before the download was done"};
    events.clear();
    if (Status fed = reader.feed(*bytes, events); !fed.ok()) co_return fed;
    for (const http::SseEvent& event : events) {
      if (event.event == "done") co_return ok_status();
      if (event.event == "error") co_return contract::parse_error_event(event.data);
      if (Clock::now() < next_told) continue;
      std::optional<LoadProgress> progress = read_progress(event.data);
      if (!progress) continue;
      next_told = Clock::now() + kProgressPause;
      progress->host = load->host;
      progress->model = load->plan.model;
      note_progress(load, std::move(*progress));
    }
  }
}

}  // namespace llorch::orchestrator
