// When a job that waits is likely to begin.
#include <algorithm>
#include <limits>

#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr std::uint32_t kGuessedSlots = 4;
constexpr std::size_t kViewsMax = 64;

// Until a worker of the model takes jobs at all; 0: one does.
double until_served_ms(const Fleet& fleet, const Model& model, TimePoint now) {
  if (model.slots > 0) return 0;
  double soonest_ms = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(model.views.size(), kViewsMax); ++i) {
    if (model.views[i].closed != Refusal::None) continue;
    soonest_ms = std::min(soonest_ms, std::max(0.0, millis_between(now, model.views[i].next_free)));
  }
  return soonest_ms != std::numeric_limits<double>::infinity()
             ? soonest_ms
             : fleet.speeds.row(model.speed).start_ms;
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

}  // namespace llorch::fleet
