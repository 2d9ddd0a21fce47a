#include "fleet/decide.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "fleet/eviction.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr std::size_t kEtaSlice = 512;
constexpr std::size_t kUsageSlice = 512;

void run_timers(Turn& turn) {
  Fleet& fleet = turn.fleet;
  while (!fleet.timers.empty() && fleet.timers.top().at <= turn.now) {
    const Timer timer = fleet.timers.top();
    fleet.timers.pop();
    Job& job = fleet.jobs[timer.job];
    if (job.id == timer.id) note_due(turn, job);
  }
}

// A slice of the waiting jobs hears how long it will take.
void tell_etas(Turn& turn) {
  Fleet& fleet = turn.fleet;
  for (std::size_t i = 0; i < std::min(kEtaSlice, fleet.jobs.size()); ++i) {
    if (fleet.eta_cursor >= fleet.jobs.size()) fleet.eta_cursor = 0;
    Job& job = fleet.jobs[fleet.eta_cursor];
    const QueuePlace place = fleet.queue.find_place(fleet.eta_cursor++);
    if (place.position > 0) tell_wait(turn, job, place, fleet.lines[job.line].reason);
  }
}

void stop_idle_workers(Turn& turn) {
  Fleet& fleet = turn.fleet;
  for (WorkerIndex index = 0; index < fleet.workers.size(); ++index) {
    Worker& worker = fleet.workers[index];
    const bool is_idle = worker.view != kNone && worker.state == SeenState::Serving &&
                         worker.running.empty() && !worker.is_leaving && !worker.is_pinned;
    if (!is_idle) continue;
    const WorkerView& view = fleet.models[worker.model].views[worker.view];
    const Tenant tenant{.worker = index,
                        .bytes = worker.bytes,
                        .reload_ms = fleet.speeds.row(view.speed).start_ms,
                        .idle_s = millis_between(worker.idle_since, turn.now) / 1000,
                        .age_s = millis_between(worker.ready_at, turn.now) / 1000};
    if (!is_past_idle_time(tenant)) continue;
    worker.is_leaving = true;
    worker.leaving_since = turn.now;
    refresh_view(fleet, index, turn.now);
    turn.effects.stop_worker(fleet.hosts[worker.host].id, worker.id);
  }
}

void reopen_workers(Fleet& fleet, TimePoint now) {
  std::vector<WorkerIndex> closed = std::exchange(fleet.reopening, {});
  std::sort(closed.begin(), closed.end());
  closed.erase(std::unique(closed.begin(), closed.end()), closed.end());
  for (const WorkerIndex index : closed) refresh_view(fleet, index, now);  // lists itself again
}

void keep_usage(Turn& turn) {
  std::vector<KeyIndex>& dirty = turn.fleet.dirty_keys;
  for (std::size_t i = 0; i < kUsageSlice && !dirty.empty(); ++i) {
    Key& key = turn.fleet.keys[dirty.back()];
    dirty.pop_back();
    key.is_dirty = false;
    turn.effects.keep(Bucket::Usage, text(key.id), usage_text(key.usage));
  }
}

void end_hold(Fleet& fleet, TimePoint now) {
  if (now >= fleet.hold_until) return;
  const bool all = std::all_of(fleet.hosts.begin(), fleet.hosts.end(), [](const Host& host) {
    return host.was_seen || host.facts.state == HostState::Unknown;
  });
  if (all) fleet.hold_until = now;
}

void tick(Turn& turn, const Tick& event) {
  Fleet& fleet = turn.fleet;
  fleet.wall_offset_ms =
      event.wall_ms - std::chrono::duration_cast<Millis>(turn.now.time_since_epoch()).count();
  for (HostIndex host = 0; host < fleet.hosts.size(); ++host) advance_host(turn, host);
  run_timers(turn);
  acquit_unexplained(turn);
  reopen_workers(fleet, turn.now);
  look_at_parked(turn);
  for (ModelIndex model = 0; model < fleet.models.size(); ++model) pump_model(turn, model);
  stop_idle_workers(turn);
  tell_etas(turn);
  keep_usage(turn);
}

void change_key(Turn& turn, const KeyChanged& event) {
  Fleet& fleet = turn.fleet;
  const KeyIndex index = find_or_add_key(fleet, event.key);
  fleet.keys[index].facts = event.facts;
  if (!event.facts.revoked || fleet.keys[index].jobs == 0) return;
  for (Job& job : fleet.jobs) {
    if (job.key == index) stop(turn, job, StopCause::KeyRevoked, 0);
  }
}

void ask_host(Turn& turn, const HostAsked& event) {
  Fleet& fleet = turn.fleet;
  if (event.wish == HostWish::Down && find_host(fleet, event.host) == kNone) return;
  const HostIndex host = find_or_add_host(fleet, event.host);
  HostFacts& facts = fleet.hosts[host].facts;
  if (event.wish == HostWish::Up) {
    facts.kind = event.kind;
    ask_up(facts, turn.now);
  } else {
    ask_down(facts, turn.now);
  }
  advance_host(turn, host);
}

struct Handler {
  Turn& turn;

  void operator()(const Submitted& event) const { submit(turn, event); }
  void operator()(const Written& event) const { note_written(turn, event); }
  void operator()(const FollowersChanged& event) const { note_followers(turn, event); }
  void operator()(const AttemptStarted& event) const { note_started(turn, event); }
  void operator()(const Progress& event) const { note_progress(turn, event); }
  void operator()(const AttemptEnded& event) const { end_attempt(turn, event); }
  void operator()(const LoadEnded& event) const { end_load(turn, event); }
  void operator()(const HostAsked& event) const { ask_host(turn, event); }
  void operator()(const KeyChanged& event) const { change_key(turn, event); }
  void operator()(const Tick& event) const { tick(turn, event); }
  void operator()(const ShuttingDown&) const {
    turn.fleet.is_closing = true;
    for (Job& job : turn.fleet.jobs) {
      const bool is_live = turn.fleet.job_by_id.contains(job.id);
      if (is_live && job.facts.holder == Holder::Connection)
        stop(turn, job, StopCause::ShutDown, 0);
    }
  }
  void operator()(const StopAsked& event) const {
    Job* job = find_job(turn.fleet, event.job);
    if (job != nullptr) return stop(turn, *job, event.cause, event.request);
    if (event.request == 0) return;
    turn.effects.answer(
        event.request,
        {.job = event.job,
         .status = Status(Error{ErrorCode::NotFound, "no live job " + text(event.job)})});
  }
  void operator()(const PoolSeen& event) const {
    apply_pool(turn, event);
    end_hold(turn.fleet, turn.now);
  }
  void operator()(const PoolLost& event) const {
    const HostIndex host = find_host(turn.fleet, event.host);
    if (host == kNone) return;
    note_lost(turn.fleet.hosts[host].facts, event.reason, turn.now);
    advance_host(turn, host);
  }
  void operator()(const HostStepEnded& event) const {
    const HostIndex host = find_host(turn.fleet, event.host);
    if (host == kNone) return;
    note_step(turn.fleet.hosts[host].facts, event.action, event.outcome, turn.now);
    advance_host(turn, host);
  }
};

}  // namespace

void decide(Fleet& fleet, const Event& event, TimePoint now, FleetEffects& effects) {
  Turn turn{fleet, now, effects};
  std::visit(Handler{turn}, event);
}

}  // namespace llorch::fleet
