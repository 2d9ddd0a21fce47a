// What a model finds on each device: room for a worker, or what stands in the way.
#include <algorithm>

#include "fleet/eviction.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr double kGuessedLinkBytesPerSecond = 20e6;
constexpr double kDrainMs = 500;    // an idle worker leaves quickly
constexpr Millis kLookPause{1000};  // between two considerations of a load for one model
constexpr Millis kRoomClaim{3000};  // beyond the next look, so that it is renewed in time

// Until its last job, or its load, is likely to have ended.
double until_ended_ms(const Worker& worker, TimePoint now) {
  TimePoint last = worker.state == SeenState::Loading ? worker.ready_at : now;
  for (const Worker::Running& run : worker.running) last = std::max(last, run.predicted_end);
  return std::max(0.0, millis_between(now, last));
}

// One that hangs, leaves or loses jobs does not count: another may take its place.
bool takes_jobs_on(const Fleet& fleet, const Worker& worker, const Device& device,
                   ModelIndex model) {
  if (worker.model != model || worker.view == kNone || worker.is_leaving) return false;
  if (worker.state != SeenState::Serving || worker.device == kNone) return false;
  if (fleet.devices[worker.device].number != device.number) return false;
  const WorkerView& view = fleet.models[model].views[worker.view];
  return view.closed == Refusal::None && !view.is_paused;
}

// Nor is the model loaded anew where its worker is to end for another one.
bool makes_room_on(const Fleet& fleet, const Worker& worker, const Device& device, ModelIndex model,
                   TimePoint now) {
  return worker.model == model && worker.view != kNone && !worker.is_leaving &&
         fleet.devices[worker.device].number == device.number && now < worker.room_until;
}

Refusal find_load_refusal(const Fleet& fleet, const Host& host, const Device& device,
                          const SeenModel& seen, ModelIndex model, TimePoint now) {
  if (!takes_work(host.facts)) return Refusal::HostDown;
  if (device.number >= 64 || ((seen.devices >> device.number) & 1U) == 0) return Refusal::NoBackend;
  if (seen.need_bytes > device.seen.total_bytes) return Refusal::TooBig;
  if (seen.missing_bytes > host.disk_free_bytes) return Refusal::DiskFull;
  const auto pause = host.load_pauses.find(model);
  if (pause != host.load_pauses.end() && now < pause->second.until) return pause->second.reason;
  for (const WorkerIndex index : host.workers) {
    const Worker& worker = fleet.workers[index];
    const bool is_loading = worker.view != kNone && worker.state == SeenState::Loading;
    if (is_loading && worker.model == model) return Refusal::AlreadyLoading;
    if (makes_room_on(fleet, worker, device, model, now)) return Refusal::MakesRoom;
    if (takes_jobs_on(fleet, worker, device, model)) return Refusal::AlreadyThere;
  }
  return Refusal::None;
}

DeviceView make_device_view(Fleet& fleet, ModelIndex model, DeviceIndex index, TimePoint now) {
  const Device& device = fleet.devices[index];
  const Host& host = fleet.hosts[device.host];
  const SeenModel& seen = host.models.find(model)->second;
  DeviceView view{.device = index,
                  .host = device.host,
                  .closed = find_load_refusal(fleet, host, device, seen, model, now),
                  .labels = host.labels,
                  .context = seen.context};
  view.speed = fleet.speeds.find_or_add(
      model, index, {device.seen.bytes_per_second, static_cast<double>(seen.weight_bytes)});
  if (view.closed != Refusal::None) return view;
  view.load_ms = fleet.speeds.row(view.speed).start_ms;
  const double link =
      host.link_bytes_per_second > 0 ? host.link_bytes_per_second : kGuessedLinkBytesPerSecond;
  view.load_ms += 1000 * static_cast<double>(seen.missing_bytes) / link;
  const std::int64_t missing = seen.need_bytes - free_bytes(fleet, index);
  if (missing > 0) {
    const std::vector<Tenant> tenants = tenants_of(fleet, index, now);
    if (!choose_evictions(tenants, missing)) {
      const std::optional<FutureRoom> room = find_future_room(tenants, missing);
      view.closed = room ? Refusal::MemoryBusy : Refusal::MemoryInUse;
      if (room) view.load_ms += room->wait_ms;
    }
    view.load_ms += kDrainMs;
  }
  return view;
}

}  // namespace

std::vector<Tenant> tenants_of(const Fleet& fleet, DeviceIndex device, TimePoint now) {
  std::vector<Tenant> tenants;
  for (const WorkerIndex index : fleet.hosts[fleet.devices[device].host].workers) {
    const Worker& worker = fleet.workers[index];
    if (worker.device != device || worker.view == kNone || worker.is_leaving) continue;
    const WorkerView& view = fleet.models[worker.model].views[worker.view];
    tenants.push_back({.worker = index,
                       .bytes = worker.bytes,
                       .reload_ms = fleet.speeds.row(view.speed).start_ms,
                       .idle_s = millis_between(worker.idle_since, now) / 1000,
                       .ends_ms = until_ended_ms(worker, now),
                       .age_s = millis_between(worker.ready_at, now) / 1000,
                       .is_busy = !worker.running.empty() || worker.state != SeenState::Serving,
                       .is_pinned = worker.is_pinned});
  }
  return tenants;
}

std::int64_t free_bytes(const Fleet& fleet, DeviceIndex index) {
  const Device& device = fleet.devices[index];
  std::int64_t free = device.seen.free_bytes;
  for (const WorkerIndex known : fleet.hosts[device.host].workers) {
    const Worker& worker = fleet.workers[known];
    if (worker.device != index) continue;
    if (worker.id.empty()) free -= worker.bytes;
    if (worker.is_leaving) free += worker.bytes;
  }
  return free;
}

void refresh_devices(Fleet& fleet, ModelIndex index, TimePoint now) {
  Model& model = fleet.models[index];
  if (!model.devices.empty() && now < model.devices_at + kLookPause) return;
  model.devices_at = now;
  model.devices.clear();
  for (const HostIndex host : model.hosts) {
    for (const DeviceIndex device : fleet.hosts[host].devices) {
      const DeviceView view = make_device_view(fleet, index, device, now);
      fleet.models[index].devices.push_back(view);
    }
  }
}

void make_room(Turn& turn, const Job& job) {
  Fleet& fleet = turn.fleet;
  const DeviceView* soonest = nullptr;
  for (const DeviceView& view : fleet.models[job.model].devices) {
    const bool is_for_it =
        (job.facts.mode != Mode::Pin || view.host == job.pin) && (job.labels & ~view.labels) == 0;
    if (view.closed != Refusal::MemoryBusy || !is_for_it) continue;
    if (soonest == nullptr || view.load_ms < soonest->load_ms) soonest = &view;
  }
  if (soonest == nullptr) return;
  const Host& host = fleet.hosts[soonest->host];
  const std::int64_t missing =
      host.models.find(job.model)->second.need_bytes - free_bytes(fleet, soonest->device);
  const std::optional<FutureRoom> room =
      find_future_room(tenants_of(fleet, soonest->device, turn.now), missing);
  if (!room) return;
  for (const WorkerIndex index : room->busy) {
    fleet.workers[index].room_until = turn.now + kRoomClaim;
    refresh_view(fleet, index, turn.now);
  }
}

}  // namespace llorch::fleet
