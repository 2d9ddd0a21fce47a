// Rows of workers: what pools say about them, what follows when one dies or its host goes.
#include <algorithm>

#include "base/check.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr Millis kLeavePatience{60'000};
constexpr Millis kLoadPause{30'000};  // after one that failed
constexpr Millis kAskPause{2'000};    // after one that the pool could not be asked for
// After the first accident; twice as long each time. Longer than from one look to the next, so that
// another host comes first.
constexpr Millis kAccidentPause{1'100};
constexpr int kAccidentsMax = 4;  // in a row: then the model is to blame

void count_slots(Model& model, const WorkerView& view, bool add) {
  if (view.closed != Refusal::None || view.is_loading || view.is_paused) return;
  const std::uint32_t free = view.slots > view.busy ? view.slots - view.busy : 0U;
  if (add) {
    model.slots += view.slots;
    model.free_slots += free;
  } else {
    CHECK(model.slots >= view.slots && model.free_slots >= free, "slots are counted once");
    model.slots -= view.slots;
    model.free_slots -= free;
  }
}

Refusal find_closed(const Fleet& fleet, const Worker& worker, TimePoint now) {
  if (!takes_work(fleet.hosts[worker.host].facts)) return Refusal::HostDown;
  if (worker.is_leaving || worker.state == SeenState::Draining) return Refusal::Draining;
  if (now < worker.room_until) return Refusal::MakesRoom;
  return worker.breaker.lets_in(now) ? Refusal::None : Refusal::BreakerOpen;
}

void free_row(Fleet& fleet, WorkerIndex index) {
  fleet.workers[index] = Worker{};
  fleet.free_workers.push_back(index);
}

// Takes it out of everything that is searched; the row stays until its attempts have ended.
void bury(Turn& turn, WorkerIndex index, std::optional<LossCause> cause) {
  Fleet& fleet = turn.fleet;
  Worker& worker = fleet.workers[index];
  CHECK(worker.life != 0 && worker.view != kNone, "a worker dies once");
  Model& model = fleet.models[worker.model];
  count_slots(model, model.views[worker.view], /*add=*/false);
  if (worker.view + 1 != model.views.size()) {
    model.views[worker.view] = model.views.back();
    fleet.workers[model.views[worker.view].worker].view = worker.view;
  }
  model.views.pop_back();
  model.devices_at = TimePoint{};
  worker.view = kNone;
  worker.state = SeenState::Ended;
  worker.cause = cause;
  std::vector<WorkerIndex>& of_host = fleet.hosts[worker.host].workers;
  of_host.erase(std::find(of_host.begin(), of_host.end(), index));
  const std::uint64_t life = worker.life;
  if (worker.running.empty()) {
    free_row(fleet, index);
  } else {
    const std::vector<Worker::Running> running = worker.running;
    for (const Worker::Running& run : running)
      cut(turn, fleet.jobs[run.job], cause.value_or(LossCause::WorkerError));
  }
  explain_death(turn, life, cause);
}

// Until when, and why, a model is not loaded again where a load of it has failed.
LoadPause pause_after(const LoadPause& before, const LoadEnded& ended, TimePoint now) {
  if (ended.error->code == ErrorCode::Unavailable) {
    return {now + kAskPause, Refusal::HostDown, before.accidents};
  }
  if (!ended.was_accident || before.accidents + 1 >= kAccidentsMax)
    return {now + kLoadPause, Refusal::LoadFailed};
  return {now + kAccidentPause * (1 << before.accidents), Refusal::LoadBroke, before.accidents + 1};
}

void apply_speeds(Fleet& fleet, HostIndex host, const PoolSeen& seen) {
  for (const SeenSpeed& speed : seen.speeds) {
    const ModelIndex model = find_or_add_model(fleet, speed.model);
    for (const DeviceIndex device : fleet.hosts[host].devices) {
      if (fleet.devices[device].number != speed.device) continue;
      const SpeedIndex index =
          fleet.speeds.find_or_add(model, device,
                                   {fleet.devices[device].seen.bytes_per_second,
                                    static_cast<double>(fleet.models[model].weight_bytes)});
      const SpeedRow row = fleet.speeds.row(index);
      // What we measured ourselves is newer.
      if (row.prefill_samples == 0 && speed.prefill_tps > 0)
        fleet.speeds.learn_prefill(index, speed.prefill_tps);
      for (const auto& [streams, tps] : speed.decode_tps) {
        if (row.decode_samples[batch_step(streams)] == 0 && tps > 0)
          fleet.speeds.learn_decode(index, streams, tps);
      }
      if (row.start_samples == 0 && speed.load_ms > 0)
        fleet.speeds.learn_start(index, speed.load_ms);
      const SpeedIndex general = fleet.models[model].speed;
      if (fleet.speeds.row(general).is_guess() && !speed.decode_tps.empty()) {
        fleet.speeds.learn_decode(general, 1, speed.decode_tps.front().second);
        // 0: not measured. As a speed it would be hours for the shortest prompt.
        if (speed.prefill_tps > 0) fleet.speeds.learn_prefill(general, speed.prefill_tps);
      }
    }
  }
}

void apply_things(Fleet& fleet, HostIndex index, const PoolSeen& seen) {
  Host& host = fleet.hosts[index];
  host.was_seen = true;
  host.labels = host_labels(fleet, seen.labels);
  host.disk_free_bytes = seen.disk_free_bytes;
  host.link_bytes_per_second = seen.link_bytes_per_second;
  for (const SeenDevice& device : seen.devices) {
    const auto found = std::find_if(
        host.devices.begin(), host.devices.end(),
        [&](DeviceIndex known) { return fleet.devices[known].number == device.number; });
    if (found != host.devices.end()) {
      fleet.devices[*found].seen = device;
    } else {
      host.devices.push_back(static_cast<DeviceIndex>(fleet.devices.size()));
      fleet.devices.push_back({index, device.number, device});
    }
  }
  for (const auto& [known, old] : host.models) {
    Model& model = fleet.models[known];
    const bool stays =
        std::any_of(seen.models.begin(), seen.models.end(),
                    [&model](const SeenModel& one) { return one.model == model.hash; });
    if (!stays) model.hosts.erase(std::find(model.hosts.begin(), model.hosts.end(), index));
  }
  std::unordered_map<ModelIndex, SeenModel> models;
  for (const SeenModel& model : seen.models) {
    const ModelIndex known = find_or_add_model(fleet, model.model);
    Model& row = fleet.models[known];
    row.name = model.name;
    row.weight_bytes = model.weight_bytes;
    if (!models.emplace(known, model).second) continue;
    if (!fleet.hosts[index].models.contains(known)) row.hosts.push_back(index);
  }
  fleet.hosts[index].models = std::move(models);
}

void keep_changes(Turn& turn, const std::vector<HostMemory::Change>& changes) {
  for (const HostMemory::Change& change : changes)
    turn.effects.keep(Bucket::HostModels, change.host, change.text);
}

// For the time when it cannot be asked.
void remember_models(Turn& turn, const PoolSeen& seen) {
  std::vector<std::string> names;
  for (const SeenModel& model : seen.models) {
    if (model.missing_bytes == 0) names.push_back(model.name);
  }
  keep_changes(turn, turn.fleet.memory.note_seen(seen.host, std::move(names),
                                                 wall_ms(turn.fleet, turn.now)));
}

void update_worker(Fleet& fleet, WorkerIndex index, const SeenWorker& seen, TimePoint now) {
  Worker& worker = fleet.workers[index];
  const bool became_ready = worker.state == SeenState::Loading && seen.state == SeenState::Serving;
  WorkerView& view = fleet.models[worker.model].views[worker.view];
  count_slots(fleet.models[worker.model], view, /*add=*/false);
  view.slots = std::max<std::uint16_t>(1, seen.slots);
  fleet.models[worker.model].slots_seen = view.slots;
  view.context = seen.context;
  view.exactness = seen.exactness;
  view.can_resume = seen.can_resume;
  count_slots(fleet.models[worker.model], view, /*add=*/true);
  worker.state = seen.state;
  // The order to stop was lost, or the load it made room for has failed.
  if (seen.state == SeenState::Serving && now - worker.leaving_since > kLeavePatience)
    worker.is_leaving = false;
  worker.bytes = seen.bytes;
  worker.is_pinned = seen.is_pinned;
  worker.token_seen_at = now - Millis(seen.token_age_ms);
  if (became_ready) {
    worker.ready_at = now;
    worker.idle_since = now;
  } else if (seen.state == SeenState::Loading) {
    worker.ready_at = after_millis(now, seen.ready_in_ms);
  }
  refresh_view(fleet, index, now);
}

// A worker of this name, or the load that is making it.
WorkerIndex find_worker(const Fleet& fleet, HostIndex host, const SeenWorker& seen) {
  WorkerIndex unnamed = kNone;
  for (const WorkerIndex index : fleet.hosts[host].workers) {
    const Worker& worker = fleet.workers[index];
    if (worker.id == seen.id) return index;
    const bool fits = worker.id.empty() && fleet.models[worker.model].hash == seen.model &&
                      fleet.devices[worker.device].number == seen.device;
    if (fits) unnamed = index;
  }
  return unnamed;
}

DeviceIndex find_device(const Fleet& fleet, HostIndex host, std::uint32_t number) {
  for (const DeviceIndex index : fleet.hosts[host].devices) {
    if (fleet.devices[index].number == number) return index;
  }
  return kNone;
}

void apply_worker(Turn& turn, HostIndex host, const SeenWorker& seen) {
  Fleet& fleet = turn.fleet;
  WorkerIndex index = find_worker(fleet, host, seen);
  if (index != kNone && fleet.workers[index].id.empty()) {
    if (seen.state == SeenState::Ended) return;  // LoadEnded says why
    fleet.workers[index].id = seen.id;
    fleet.workers[index].start = seen.start;
  }
  if (index != kNone && fleet.workers[index].start != seen.start) {
    bury(turn, index, std::nullopt);  // its name is another's now
    index = kNone;
  }
  if (seen.state == SeenState::Ended) {
    if (index != kNone) bury(turn, index, seen.cause);
    return;
  }
  const DeviceIndex device = find_device(fleet, host, seen.device);
  if (device == kNone) return;  // a pool that names workers without their device
  if (index == kNone) {
    index = add_worker(fleet, {.id = seen.id,
                               .start = seen.start,
                               .host = host,
                               .device = device,
                               .model = find_or_add_model(fleet, seen.model),
                               .state = SeenState::Loading,
                               .ready_at = turn.now,
                               .idle_since = turn.now,
                               .load_began = turn.now});
  }
  update_worker(fleet, index, seen, turn.now);
}

}  // namespace

WorkerIndex add_worker(Fleet& fleet, Worker worker) {
  WorkerIndex index = static_cast<WorkerIndex>(fleet.workers.size());
  if (fleet.free_workers.empty()) {
    fleet.workers.emplace_back();
  } else {
    index = fleet.free_workers.back();
    fleet.free_workers.pop_back();
  }
  worker.life = fleet.next_life++;
  Model& model = fleet.models[worker.model];
  worker.view = static_cast<std::uint32_t>(model.views.size());
  const Device& device = fleet.devices[worker.device];
  WorkerView view{.worker = index, .host = worker.host, .closed = Refusal::HostDown};
  view.speed = fleet.speeds.find_or_add(
      worker.model, worker.device,
      {device.seen.bytes_per_second, static_cast<double>(model.weight_bytes)});
  model.views.push_back(view);
  fleet.hosts[worker.host].workers.push_back(index);
  fleet.workers[index] = std::move(worker);
  refresh_view(fleet, index, fleet.workers[index].load_began);
  return index;
}

void refresh_view(Fleet& fleet, WorkerIndex index, TimePoint now) {
  Worker& worker = fleet.workers[index];
  if (worker.view == kNone) return;
  Model& model = fleet.models[worker.model];
  WorkerView& view = model.views[worker.view];
  count_slots(model, view, /*add=*/false);
  view.closed = find_closed(fleet, worker, now);
  view.is_loading = worker.state == SeenState::Loading;
  view.is_paused = now < worker.closed_until;
  view.labels = fleet.hosts[worker.host].labels;
  view.busy = static_cast<std::uint16_t>(worker.running.size());
  view.has_suspect = false;
  view.next_free = view.is_loading ? worker.ready_at : now;
  if (!view.is_loading && view.busy >= view.slots) {
    view.next_free = TimePoint::max();
    for (const Worker::Running& run : worker.running)
      view.next_free = std::min(view.next_free, run.predicted_end);
  }
  if (view.is_paused) view.next_free = std::max(view.next_free, worker.closed_until);
  for (const Worker::Running& run : worker.running)
    view.has_suspect |= fleet.jobs[run.job].suspicion.is_suspect();
  count_slots(model, view, /*add=*/true);
  const bool reopens = view.closed == Refusal::BreakerOpen || view.closed == Refusal::MakesRoom;
  if (reopens || view.is_paused) fleet.reopening.push_back(index);
}

void release_slot(Fleet& fleet, WorkerIndex index, JobIndex job, TimePoint now) {
  Worker& worker = fleet.workers[index];
  const auto found = std::find_if(worker.running.begin(), worker.running.end(),
                                  [job](const Worker::Running& run) { return run.job == job; });
  CHECK(found != worker.running.end(), "a slot is released by the job that has it");
  worker.running.erase(found);
  if (worker.running.empty()) worker.idle_since = now;
  if (worker.state != SeenState::Ended) {
    refresh_view(fleet, index, now);
  } else if (worker.running.empty()) {
    free_row(fleet, index);
  }
}

void apply_pool(Turn& turn, const PoolSeen& seen) {
  Fleet& fleet = turn.fleet;
  const HostIndex host = find_host(fleet, seen.host);
  if (host == kNone || fleet.hosts[host].facts.state == HostState::Unknown) {
    ++fleet.counters.late_events;  // nobody wants it up
    return;
  }
  Host& row = fleet.hosts[host];
  if (row.pool_start == seen.pool_start && seen.revision < row.revision) {
    ++fleet.counters.late_events;
    return;
  }
  row.pool_start = seen.pool_start;
  row.revision = seen.revision;
  note_seen(row.facts, turn.now);
  apply_things(fleet, host, seen);
  remember_models(turn, seen);
  advance_host(turn, host);
  apply_speeds(fleet, host, seen);
  for (const SeenWorker& worker : seen.workers) apply_worker(turn, host, worker);
  const std::vector<WorkerIndex> known = fleet.hosts[host].workers;
  for (const WorkerIndex index : known) {
    Worker& worker = fleet.workers[index];
    if (worker.id.empty()) continue;  // its load has not named it yet
    const bool is_seen = std::any_of(seen.workers.begin(), seen.workers.end(),
                                     [&](const SeenWorker& w) { return w.id == worker.id; });
    // One that a load has just named may be missing in reports that were under way.
    const bool is_new = worker.load != 0 && turn.now - worker.ready_at < 2 * kHeartbeat;
    if (is_seen) {
      worker.load = 0;
    } else if (!is_new) {
      bury(turn, index, std::nullopt);
    }
  }
  std::vector<ModelIndex> models;
  for (const WorkerIndex index : fleet.hosts[host].workers)
    models.push_back(fleet.workers[index].model);
  for (const ModelIndex model : models) pump_model(turn, model);
}

void end_load(Turn& turn, const LoadEnded& ended) {
  Fleet& fleet = turn.fleet;
  const HostIndex host = find_host(fleet, ended.host);
  if (host == kNone) return;
  for (const WorkerIndex index : fleet.hosts[host].workers) {
    Worker& worker = fleet.workers[index];
    if (worker.load != ended.load) continue;
    const ModelIndex model = worker.model;
    if (ended.error) {
      LoadPause& pause = fleet.hosts[host].load_pauses[model];
      pause = pause_after(pause, ended, turn.now);
      fleet.models[model].load_error = ended.error->message;
      bury(turn, index, std::nullopt);
    } else {
      fleet.hosts[host].load_pauses.erase(model);
      fleet.models[model].load_error.clear();
      worker.id = ended.worker;
      worker.start = ended.start;
      worker.state = SeenState::Serving;
      worker.ready_at = turn.now;
      worker.idle_since = turn.now;
      const SpeedIndex speed = fleet.models[model].views[worker.view].speed;
      fleet.speeds.learn_start(speed, millis_between(worker.load_began, turn.now));
      refresh_view(fleet, index, turn.now);
      if (ended.seen) update_worker(fleet, index, *ended.seen, turn.now);
    }
    fleet.models[model].devices_at = TimePoint{};
    pump_model(turn, model);
    return;
  }
  ++fleet.counters.late_events;
}

void advance_host(Turn& turn, HostIndex index) {
  Fleet& fleet = turn.fleet;
  const HostStep step = next_step(fleet.hosts[index].facts, turn.now);
  for (const HostAction action : step.actions)
    turn.effects.step_host(fleet.hosts[index].id, action);
  if (step.went_down || step.was_lost) {
    const Host& host = fleet.hosts[index];
    keep_changes(turn, fleet.memory.note_gone(host.id, wall_ms(fleet, host.facts.last_seen)));
  }
  if (step.was_lost) {
    const std::vector<WorkerIndex> workers = fleet.hosts[index].workers;
    for (const WorkerIndex worker : workers) bury(turn, worker, LossCause::Host);
  }
  if (!step.came_up && !step.went_down) return;
  std::vector<ModelIndex> models;
  for (const WorkerIndex worker : fleet.hosts[index].workers) {
    refresh_view(fleet, worker, turn.now);
    models.push_back(fleet.workers[worker].model);
  }
  for (const ModelIndex model : models) pump_model(turn, model);
}

}  // namespace llorch::fleet
