#include "orchestrator/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "contract/download_event.h"
#include "contract/error_table.h"
#include "http/sse.h"
#include "http/url.h"
#include "pool_client/pool_client.h"

namespace llorch::orchestrator {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kCallTimeout{10'000};
constexpr milliseconds kFirstPause{100};  // after a poll that failed; twice as long each time
constexpr milliseconds kLongestPause{2'000};
constexpr int kFailuresToLose = 2;
constexpr milliseconds kProgressPause{1'000};
constexpr milliseconds kDetailsPatience{3'000};  // of a ready worker whose build is not known yet
constexpr std::string_view kUnknownBuild = "unknown";
constexpr std::size_t kStateBytesMax = std::size_t{64} << 20U;

const base::Logger& logger() {
  static const base::Logger instance("orchestrator");
  return instance;
}

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

http::Task<void> pause_for(milliseconds time) {
  http::Waker waker;
  const auto until = Clock::now() + time;
  while (Clock::now() < until) co_await waker.wait_until(until);
}

}  // namespace

// Shared by the poller's coroutine and the owner.
struct Pools::Poll {
  fleet::HostId host;
  PoolAddress pool;
  std::atomic<bool> is_wanted = true;
};

struct Pools::Load {
  fleet::HostId host;
  fleet::LoadPlan plan;
  PoolAddress pool;
  bool is_missing = false;  // must be fetched first
  // Of the owner's thread.
  LoadProgress progress;
  bool was_accident = false;              // its failure, see pool_report.h
  std::string worker;                     // once the pool has named it
  std::vector<std::string> known_before;  // workers that were there when it was ordered
};

Pools::Pools(Orchestrator& orchestrator, http::IoThreads& io, http::WorkThreads& threads,
             PoolsOptions options)
    : orchestrator_(orchestrator), io_(io), threads_(threads), options_(std::move(options)) {}

Pools::~Pools() = default;

// --- calls ---

http::ClientRequest Pools::make_request(http::Method method, const PoolAddress& pool,
                                        std::string_view path) const {
  http::ClientRequest request(method, pool.url + std::string(path));
  request.total_timeout = kCallTimeout;
  request.max_response_bytes = kStateBytesMax;
  request.headers.add("X-Llorch-Boot", std::to_string(options_.boot));
  if (!pool.token.empty()) request.headers.add("Authorization", "Bearer " + pool.token);
  return request;
}

http::Task<Result<json::Value>> Pools::call(http::ClientRequest request) {
  Result<http::Response> response = co_await client_.async_send(std::move(request));
  if (!response.ok()) co_return response.error();
  const auto body = std::make_shared<http::Response>(response.take());
  std::function<Result<json::Value>()> parse = [body]() -> Result<json::Value> {
    if (body->status / 100 == 2) return json::parse(body->body);
    const Result<contract::ErrorReport> report = contract::parse_error_body(body->body);
    return report.ok() ? report->error : report.error();
  };
  co_return co_await threads_.run(std::move(parse));
}

// --- polling ---

http::Task<void> Pools::run_poll(std::shared_ptr<Poll> poll) {
  std::uint64_t since = 0;
  milliseconds pause = kFirstPause;
  int failures = 0;
  while (poll->is_wanted) {
    http::ClientRequest request = make_request(
        http::Method::Get, poll->pool,
        fmt::format("/v2/state?since={}&wait_ms={}", since, options_.poll_wait.count()));
    request.total_timeout = options_.poll_wait + kCallTimeout;
    Result<json::Value> state = co_await call(std::move(request));
    Result<contract::PoolState> report = state.ok() ? contract::parse_pool_state(*state)
                                                    : Result<contract::PoolState>(state.error());
    if (!poll->is_wanted) co_return;
    if (!report.ok()) {
      if (++failures == kFailuresToLose)
        orchestrator_.post(fleet::PoolLost{poll->host, report.error().message});
      co_await pause_for(pause);
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    failures = 0;
    pause = kFirstPause;
    since = report->revision;
    const auto shared = std::make_shared<const contract::PoolState>(report.take());
    orchestrator_.run_on_owner([this, poll, shared] { take_report(poll, *shared); });
    if (since == 0) co_await pause_for(options_.poll_pause);
  }
}

bool Pools::is_hidden(const Row& row, const contract::PoolWorker& reported) const {
  // A worker that is being loaded for us is told by the end of its load, which also says why it
  // failed; until then it is nobody's.
  return std::any_of(row.loads.begin(), row.loads.end(), [&](const LoadPtr& load) {
    if (!load->worker.empty()) return load->worker == reported.id;
    const auto& before = load->known_before;
    return reported.model == load->plan.model_name &&
           std::find(before.begin(), before.end(), reported.id) == before.end();
  });
}

void Pools::take_report(const std::shared_ptr<Poll>& poll, const contract::PoolState& state) {
  const auto found = rows_.find(poll->host);
  if (found == rows_.end() || found->second.poll != poll) return;
  Row& row = found->second;
  row.details = {poll->pool, state.pool_id, state.version, state.host, state.devices, state.labels};
  row.downloaded.clear();
  for (const contract::PoolModel& model : state.models) {
    if (model.downloaded) row.downloaded.push_back(model.id);
  }
  row.workers.clear();
  for (const contract::PoolWorker& worker : state.workers) row.workers.push_back(worker.id);
  contract::PoolState shown = state;
  std::erase_if(shown.workers,
                [&](const contract::PoolWorker& worker) { return is_hidden(row, worker); });
  orchestrator_.post(make_pool_seen(poll->host, shown, models_));
  for (const auto& [hash, stands_for] : models_.take_new_aliases())
    orchestrator_.keep_setting("model." + fleet::text(hash), fleet::text(stands_for));
}

void Pools::connect(const fleet::HostId& host, const PoolAddress& address) {
  Row& row = rows_[host];
  if (row.poll && row.poll->is_wanted && row.poll->pool == address) return;
  disconnect(host);
  row.poll = std::make_shared<Poll>();
  row.poll->host = host;
  row.poll->pool = address;
  row.details.pool = address;
  io_.spawn([this, poll = row.poll] { return run_poll(poll); });
}

void Pools::disconnect(const fleet::HostId& host) {
  const auto found = rows_.find(host);
  if (found == rows_.end() || !found->second.poll) return;
  found->second.poll->is_wanted = false;
  found->second.poll.reset();
}

std::optional<PoolAddress> Pools::address_of(const fleet::HostId& host) const {
  const auto found = rows_.find(host);
  if (found == rows_.end() || !found->second.poll) return std::nullopt;
  return found->second.poll->pool;
}

const HostDetails* Pools::find_details(const fleet::HostId& host) const {
  const auto found = rows_.find(host);
  return found == rows_.end() || !found->second.poll ? nullptr : &found->second.details;
}

// --- loads ---

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
  load->known_before = row.workers;
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
  fleet::LoadEnded ended{.host = load->host, .load = load->plan.load};
  if (worker.ok()) {
    ended.worker = worker->id;
    ended.start = start_of(*worker);
    ended.seen = make_seen_worker(*worker, models_);
  } else {
    ended.error = worker.error();
    ended.was_accident = load->was_accident;
    logger().warn(
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

// --- stops and hosts ---

void Pools::stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) {
  const std::optional<PoolAddress> pool = address_of(host);
  if (pool) io_.spawn([this, pool = *pool, worker] { return run_stop(pool, worker); });
}

http::Task<void> Pools::run_stop(PoolAddress pool, fleet::WorkerId worker) {
  http::ClientRequest request = make_request(http::Method::Post, pool, "/v2/workers/stop");
  request.body = json::serialize(json::Object{{"id", worker}});
  Result<json::Value> answer = co_await call(std::move(request));
  if (!answer.ok() && answer.error().code != ErrorCode::NotFound) {
    logger().warn("a worker could not be stopped",
                  {{"worker", worker}, {"why", answer.error().message}});
  }
}

void Pools::step_host(const fleet::HostId& host, fleet::HostAction action) {
  if (host == kLocalHost) {
    io_.spawn([this, host, action] { return run_local_step(host, action); });
    return;
  }
  if (options_.steps == nullptr) {
    return note_step(
        host, action,
        {{.ok = false, .reason = "this orchestrator cannot reach other hosts", .is_final = true},
         {}});
  }
  options_.steps->step(host, action, [this, host, action](HostSteps::Outcome outcome) {
    orchestrator_.run_on_owner(
        [this, host, action, outcome = std::move(outcome)] { note_step(host, action, outcome); });
  });
}

http::Task<void> Pools::run_local_step(fleet::HostId host, fleet::HostAction action) {
  HostSteps::Outcome outcome;
  if (action == fleet::HostAction::Stop) {
    orchestrator_.run_on_owner([this, host] { stop_local(host); });
    co_return;
  }
  std::function<Result<PoolAddress>()> start = options_.start_local;
  Result<PoolAddress> pool = co_await threads_.run(std::move(start));
  outcome.step.ok = pool.ok();
  if (pool.ok()) {
    outcome.pool = pool.take();
  } else {
    outcome.step.reason = pool.error().message;
  }
  orchestrator_.run_on_owner([this, host, action, outcome] { note_step(host, action, outcome); });
}

void Pools::stop_local(const fleet::HostId& host) {
  const std::optional<PoolAddress> pool = address_of(host);
  if (!pool) return note_step(host, fleet::HostAction::Stop, {{.ok = true}, {}});
  io_.spawn([this, host, pool = *pool] { return shut_down(host, pool); });
}

http::Task<void> Pools::shut_down(fleet::HostId host, PoolAddress pool) {
  http::ClientRequest request = make_request(http::Method::Post, pool, "/v2/shutdown");
  request.body = "{}";
  Result<json::Value> answer = co_await call(std::move(request));
  HostSteps::Outcome outcome;
  outcome.step.ok = answer.ok();
  if (!answer.ok()) outcome.step.reason = answer.error().message;
  orchestrator_.run_on_owner(
      [this, host, outcome] { note_step(host, fleet::HostAction::Stop, outcome); });
}

void Pools::note_step(const fleet::HostId& host, fleet::HostAction action,
                      const HostSteps::Outcome& outcome) {
  if (outcome.step.ok && !outcome.pool.url.empty()) connect(host, outcome.pool);
  if (action == fleet::HostAction::Stop) disconnect(host);
  if (!outcome.step.ok) {
    logger().warn("a step of a host failed",
                  {{"host", host}, {"step", fleet::name(action)}, {"why", outcome.step.reason}});
  }
  orchestrator_.post(fleet::HostStepEnded{host, action, outcome.step});
}

}  // namespace llorch::orchestrator
