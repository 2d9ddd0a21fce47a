#include "orchestrator/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "contract/error_table.h"
#include "orchestrator/pools_parts.h"

namespace llorch::orchestrator {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCallTimeout{10'000};
constexpr milliseconds kFirstPause{100};  // after a poll that failed; twice as long each time
constexpr milliseconds kLongestPause{2'000};
constexpr int kFailuresToLose = 2;
constexpr milliseconds kLookTimeout{1'000};
constexpr std::size_t kLookHostsMax = 256;  // those behind them are heard of by their polls
constexpr std::size_t kStateBytesMax = std::size_t{64} << 20U;

}  // namespace

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
    Result<Report> report = read_report(poll->host, state);
    if (!poll->is_wanted) co_return;
    poll->is_answering = report.ok();
    if (!report.ok()) {
      if (++failures == kFailuresToLose)
        orchestrator_.post(fleet::PoolLost{poll->host, report.error().message});
      co_await pause_for(pause);
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    failures = 0;
    pause = kFirstPause;
    since = report->state.revision;
    const auto shared = std::make_shared<const Report>(report.take());
    orchestrator_.run_on_owner([this, poll, shared] { take_report(poll, *shared); });
    if (since == 0) co_await pause_for(options_.poll_pause);
  }
}

struct Pools::Look {
  std::size_t left = 0;  // answers; of the owner's thread
  std::function<void()> on_done;
};

void Pools::look(std::function<void()> on_done) {
  const auto look = std::make_shared<Look>();
  look->on_done = std::move(on_done);
  for (const auto& [host, row] : rows_) {
    if (!row.poll || !row.poll->is_answering || look->left == kLookHostsMax) continue;
    ++look->left;
    io_.spawn([this, poll = row.poll, look] { return run_look(poll, look); });
  }
  if (look->left == 0) look->on_done();
}

http::Task<void> Pools::run_look(std::shared_ptr<Poll> poll, std::shared_ptr<Look> look) {
  http::ClientRequest request = make_request(http::Method::Get, poll->pool, "/v2/state");
  request.total_timeout = kLookTimeout;
  const Result<json::Value> state = co_await call(std::move(request));
  const auto report = std::make_shared<const Result<Report>>(read_report(poll->host, state));
  orchestrator_.run_on_owner([this, poll, look, report] {
    if (report->ok()) take_report(poll, **report);
    // Behind what the report has just posted.
    if (--look->left == 0) orchestrator_.run_on_owner(look->on_done);
  });
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

Result<Pools::Report> Pools::read_report(const fleet::HostId& host,
                                         const Result<json::Value>& state) {
  if (!state.ok()) return state.error();
  Result<contract::PoolState> parsed = contract::parse_pool_state(*state);
  if (!parsed.ok()) return parsed.error();
  return Report{parsed.take(), list_downloads(host, *state)};
}

void Pools::take_report(const std::shared_ptr<Poll>& poll, const Report& report) {
  const contract::PoolState& state = report.state;
  const auto found = rows_.find(poll->host);
  if (found == rows_.end() || found->second.poll != poll) return;
  Row& row = found->second;
  row.details = {poll->pool, state.pool_id, state.version, state.host, state.devices, state.labels};
  row.downloaded.clear();
  for (const contract::PoolModel& model : state.models) {
    if (model.downloaded) row.downloaded.push_back(model.id);
  }
  row.tells_on_demand = state.has_feature(contract::kFeatureOnDemand);
  row.workers.clear();
  for (const contract::PoolWorker& worker : state.workers) row.workers.push_back(worker.id);
  contract::PoolState shown = state;
  std::erase_if(shown.workers,
                [&](const contract::PoolWorker& worker) { return is_hidden(row, worker); });
  row.downloads = report.downloads;
  for (const WorkerAct& act : row.watch.take(state.pool_start, shown.workers)) {
    if (options_.on_worker_act) options_.on_worker_act(poll->host, act);
  }
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

// --- stops and hosts ---

void Pools::stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) {
  const std::optional<PoolAddress> pool = address_of(host);
  if (!pool) return;
  rows_[host].watch.note_own_stop(worker);
  io_.spawn([this, pool = *pool, worker] { return run_stop(pool, worker); });
}

http::Task<void> Pools::run_stop(PoolAddress pool, fleet::WorkerId worker) {
  http::ClientRequest request = make_request(http::Method::Post, pool, "/v2/workers/stop");
  request.body = json::serialize(json::Object{{"id", worker}});
  Result<json::Value> answer = co_await call(std::move(request));
  if (!answer.ok() && answer.error().code != ErrorCode::NotFound) {
    pools_logger().warn("a worker could not be stopped",
                        {{"worker", worker}, {"why", answer.error().message}});
  }
}

void Pools::step_host(const fleet::HostId& host, fleet::HostAction action) {
  if (action == fleet::HostAction::Stop) rows_[host].watch.note_own_end();
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
  // It may be another manager at the same address: asked anew, so that what is heard is its word.
  const bool is_started =
      action == fleet::HostAction::Start || action == fleet::HostAction::RollBack;
  if (outcome.step.ok && is_started) disconnect(host);
  if (outcome.step.ok && !outcome.pool.url.empty()) connect(host, outcome.pool);
  if (action == fleet::HostAction::Stop) disconnect(host);
  if (!outcome.step.ok) {
    pools_logger().warn(
        "a step of a host failed",
        {{"host", host}, {"step", fleet::name(action)}, {"why", outcome.step.reason}});
  }
  orchestrator_.post(fleet::HostStepEnded{host, action, outcome.step});
}

}  // namespace llorch::orchestrator
