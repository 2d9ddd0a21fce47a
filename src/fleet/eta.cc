// When a job that waits is likely to begin, and who hears of it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "fleet/decide.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr std::uint32_t kGuessedSlots = 4;
constexpr std::size_t kViewsMax = 64;
constexpr Millis kEtaPause{2000};
constexpr double kEtaChange = 0.1;

// Until one could be loaded where memory is to be had, or will be.
double until_loaded_ms(const Fleet& fleet, const Model& model) {
  const double start_ms = fleet.speeds.row(model.speed).start_ms;
  double soonest_ms = std::numeric_limits<double>::infinity();
  for (const DeviceView& view : model.devices) {
    if (view.closed == Refusal::None || view.closed == Refusal::MemoryBusy)
      soonest_ms = std::min(soonest_ms, view.load_ms);
    // The other model has its turn first.
    if (view.closed == Refusal::MakesRoom)
      soonest_ms = std::min(soonest_ms, static_cast<double>(kTurnPatience.count()) + start_ms);
  }
  return soonest_ms != std::numeric_limits<double>::infinity() ? soonest_ms : start_ms;
}

// Until a worker of the model takes jobs at all; 0: one does.
double until_served_ms(const Fleet& fleet, const Model& model, TimePoint now) {
  if (model.slots > 0) return 0;
  double soonest_ms = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(model.views.size(), kViewsMax); ++i) {
    if (model.views[i].closed != Refusal::None) continue;
    soonest_ms = std::min(soonest_ms, std::max(0.0, millis_between(now, model.views[i].next_free)));
  }
  return soonest_ms != std::numeric_limits<double>::infinity() ? soonest_ms
                                                               : until_loaded_ms(fleet, model);
}

// What was learnt since a job came changes its cost; what waits keeps the cost it came with.
double renewal(const Fleet& fleet, const Job& job) {
  return job.cost_s > 0 ? predict_cost_s(fleet, job, job.told) / job.cost_s : 1;
}

// The same of those before a job: between the front of its line, the oldest, and itself.
double renewal_of_line(const Fleet& fleet, const Job& job) {
  const JobIndex front = fleet.queue.peek(job.line);
  const double own = renewal(fleet, job);
  return front == kNone ? own : (own + renewal(fleet, fleet.jobs[front])) / 2;
}

}  // namespace

double predict_wait_ms(const Fleet& fleet, const Job& job, double ahead_s, TimePoint now) {
  const Model& model = fleet.models[job.model];
  if (model.free_slots > 0 && ahead_s <= 0) return 0;
  const std::uint32_t usual = model.slots_seen > 0 ? model.slots_seen : kGuessedSlots;
  const std::uint32_t slots = model.slots > 0 ? model.slots : usual;
  // Where all slots are taken, the first is free after its share of one job's time; what the jobs
  // before this one take is shared by all slots.
  const double first_s = model.slots > 0 ? job.cost_s : 0;
  const double line_ms = 1000 * (ahead_s + first_s) * renewal_of_line(fleet, job) *
                         fleet.speeds.slot_ratio(job.line) / slots;
  return until_served_ms(fleet, model, now) + line_ms;
}

void tell_wait(Turn& turn, Job& job, const QueuePlace& place, const std::string& reason) {
  const std::size_t hash = reason.empty() ? 0 : std::hash<std::string>()(reason);
  const bool is_other = hash != std::exchange(job.told_reason, hash);
  if (!reason.empty()) {  // nobody knows how long that takes
    if (is_other) turn.effects.tell(job.id, {.position = place.position, .reason = reason});
    return;
  }
  const bool listens = job.facts.holder != Holder::Detached;
  if (!is_other && (!listens || turn.now - job.told_eta_at < kEtaPause)) return;
  const double eta_ms = predict_wait_ms(turn.fleet, job, place.ahead_s, turn.now);
  if (!is_other && std::abs(eta_ms - job.told_eta_ms) <= kEtaChange * job.told_eta_ms) return;
  job.told_eta_ms = eta_ms;
  job.told_eta_at = turn.now;
  const Model& model = turn.fleet.models[job.model];
  const bool loads =
      model.slots == 0 && std::any_of(model.views.begin(), model.views.end(),
                                      [](const WorkerView& view) { return view.is_loading; });
  turn.effects.tell(job.id, {.kind = loads ? NoticeKind::Loading : NoticeKind::Queued,
                             .position = place.position,
                             .eta_ms = eta_ms});
}

}  // namespace llorch::fleet
