// From the front of a line to a worker, or to a load that makes one.
#include <algorithm>
#include <limits>

#include "fleet/decide.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr Millis kLookPause{1000};  // between two considerations of a load for one line
constexpr std::size_t kLinesMax = 4096;
constexpr std::size_t kParkedPerLook = 64;
constexpr double kBytesPerToken = 4;

double remaining_ms(const Job& job, TimePoint now) {
  return job.deadline == TimePoint::max() ? std::numeric_limits<double>::infinity()
                                          : millis_between(now, job.deadline);
}

JobView view_of(const Fleet& fleet, const Job& job, TimePoint now,
                std::span<const PrefixHit> hits) {
  const double output =
      fleet.speeds.expected_output(job.facts.key, job.model, job.facts.max_tokens) *
      std::max(1U, job.facts.choices);
  const bool resumes = job.told > 0 && job.facts.kind != JobKind::Embedding;
  return {.mode = job.facts.mode,
          .pin = job.pin,
          .labels = job.labels,
          .is_suspect = job.suspicion.is_suspect(),
          .must_resume = resumes,
          .must_be_exact = resumes && now < job.exact_until && job.exactness != 0,
          .exactness = resumes ? job.exactness : 0,
          .prompt_tokens = static_cast<double>(job.prompt_tokens + job.told),
          .expected_output = std::max(1.0, output - static_cast<double>(job.told)),
          .tokens_per_block = kPrefixBlockBytes / kBytesPerToken,
          .needed_context = job.prompt_tokens + 1,
          .remaining_ms = remaining_ms(job, now),
          .hits = hits};
}

// How long the last one in its line would wait once a slot is free.
double line_ms(const Fleet& fleet, const Job& job) {
  const double others_s = std::max(0.0, fleet.queue.cost_s(job.line) - job.cost_s);
  return 1000 * others_s / std::max(1U, fleet.models[job.model].slots);
}

Decision place_job(Fleet& fleet, const Job& job, TimePoint now) {
  refresh_devices(fleet, job.model, now);
  std::array<PrefixHit, PrefixTable::kHitsMax> hits;
  const auto start_of = [&fleet](WorkerIndex worker) {
    return worker < fleet.workers.size() ? fleet.workers[worker].start : 0;
  };
  const std::size_t count =
      job.prefix.empty() ? 0 : fleet.prefixes.find(job.prefix, hits, start_of);
  const Model& model = fleet.models[job.model];
  const Snapshot snapshot{.workers = model.views,
                          .devices = model.devices,
                          .speeds = &fleet.speeds,
                          .line_ms = line_ms(fleet, job),
                          .now = now};
  return place(snapshot, view_of(fleet, job, now, std::span(hits).first(count)), fleet.sheet);
}

void start_load(Turn& turn, const Job& job, const Decision& decision) {
  Fleet& fleet = turn.fleet;
  const DeviceIndex index = decision.device;
  const Device& device = fleet.devices[index];
  const Host& host = fleet.hosts[device.host];
  const SeenModel& seen = host.models.find(job.model)->second;
  LoadPlan plan{.load = fleet.next_load,
                .model = job.facts.model,
                .model_name = seen.name,
                .device = device.number,
                .first_stop = {}};
  const std::int64_t missing = seen.need_bytes - free_bytes(fleet, index);
  if (missing > 0) {
    const auto leaving = choose_evictions(tenants_of(fleet, index, turn.now), missing);
    fleet.models[job.model].devices_at = TimePoint{};
    if (!leaving) return;  // somebody has got work since the devices were looked at
    for (const WorkerIndex evicted : *leaving) {
      fleet.workers[evicted].is_leaving = true;
      fleet.workers[evicted].leaving_since = turn.now;
      plan.first_stop.push_back(fleet.workers[evicted].id);
      ++fleet.counters.evictions;
      refresh_view(fleet, evicted, turn.now);
    }
  }
  ++fleet.counters.loads;
  ++fleet.next_load;
  add_worker(fleet, {.load = plan.load,
                     .host = device.host,
                     .device = index,
                     .model = job.model,
                     .state = SeenState::Loading,
                     .bytes = seen.need_bytes,
                     .ready_at = after_millis(turn.now, decision.start_ms),
                     .load_began = turn.now});
  fleet.models[job.model].devices_at = TimePoint{};  // memory and loads have changed
  turn.effects.start_worker(host.id, plan);
  turn.effects.tell(job.id,
                    {.kind = NoticeKind::Loading, .eta_ms = decision.start_ms, .host = host.id});
}

// It can go nowhere although others of its line could: it steps aside.
void park(Fleet& fleet, Job& job) {
  fleet.queue.take(index_of(fleet, job));
  job.is_parked = true;
  fleet.parked.push_back(job.id);
}

bool only_failed_loads_are_left(const ScoreSheet& sheet) {
  for (std::size_t i = static_cast<std::size_t>(kLastLasting) + 1; i < kRefusals; ++i) {
    if (i != static_cast<std::size_t>(Refusal::LoadFailed) && sheet.refusals[i] > 0) return false;
  }
  return sheet.scored == 0 && sheet.refusals[static_cast<std::size_t>(Refusal::LoadFailed)] > 0;
}

// What a job that nobody can take waits for: a host that has its model, is not there and may come
// back by itself. Empty: there is none.
std::string find_reason(const Fleet& fleet, const Job& job) {
  const auto describe = [&fleet, &job](HostIndex index) -> std::string {
    const Host& host = fleet.hosts[index];
    const bool fits = job.pin == kNone || job.pin == index;
    const bool lacks_label = host.was_seen && (job.labels & ~host.labels) != 0;
    if (!fits || lacks_label || !may_return(host.facts)) return {};
    std::string why = host.facts.reason.substr(0, host.facts.reason.find('\n'));
    if (why.ends_with(':')) why.resize(std::min(why.size(), why.rfind(';')));  // "…; ssh said:"
    return "waits for host " + host.id +
           (why.empty() ? " to come up" : ", which is not connected: " + why);
  };
  for (const HostIndex index : fleet.models[job.model].hosts) {
    if (std::string found = describe(index); !found.empty()) return found;
  }
  for (const HostId& id : fleet.memory.hosts_of(job.facts.model_name)) {
    const HostIndex index = find_host(fleet, id);
    if (index == kNone || fleet.hosts[index].was_seen) continue;  // what it has said is newer
    if (std::string found = describe(index); !found.empty()) return found;
  }
  return {};
}

bool waits_for_memory(const ScoreSheet& sheet) {
  return sheet.refusals[static_cast<std::size_t>(Refusal::MemoryBusy)] > 0 ||
         sheet.refusals[static_cast<std::size_t>(Refusal::MakesRoom)] > 0;
}

// Since when nobody could take it. A worker that serves ends that, and so does one whose memory
// will be free; a load alone does not: loads may fail one after the other. Those behind a front
// that could go nowhere have waited as long as it.
void note_look(Fleet& fleet, Job& job, const Decision& decision, TimePoint now) {
  Line& line = fleet.lines[job.line];
  const bool is_served =
      decision.worker != kNone && fleet.workers[decision.worker].state == SeenState::Serving;
  if (is_served || waits_for_memory(fleet.sheet)) {
    line.nowhere_since = job.nowhere_since = TimePoint::max();
  } else if (fleet.sheet.scored == 0) {
    line.nowhere_since = std::min(line.nowhere_since, now);
    job.nowhere_since = std::min(job.nowhere_since, line.nowhere_since);
  }
  if (fleet.sheet.scored > 0) line.reason.clear();
}

Millis patience_of(const ScoreSheet& sheet, const std::string& reason) {
  const bool has_failed = sheet.refusals[static_cast<std::size_t>(Refusal::LoadFailed)] > 0;
  return reason.empty() || has_failed ? kNoCandidatePatience : kReturnPatience;
}

enum class Step : std::uint8_t { Sent, Gone, Blocked };

// Nobody can take it now. Either that passes, or it is told so.
Step hold_or_fail(Turn& turn, Job& job) {
  Fleet& fleet = turn.fleet;
  const Model& model = fleet.models[job.model];
  if (only_failed_loads_are_left(fleet.sheet)) {
    fail(turn, job, ErrorCode::LoadFailed,
         "model '" + job.facts.model_name + "' could not be loaded: " + model.load_error);
    return Step::Gone;
  }
  // A load that broke off is tried again, or fails: that has bounds of its own.
  const bool is_retried = fleet.sheet.refusals[static_cast<std::size_t>(Refusal::LoadBroke)] > 0;
  if (fleet.sheet.scored == 0 && waits_for_memory(fleet.sheet)) {
    // Its turn comes: workers of other models end what they do, and after a while they begin
    // nothing more.
    if (turn.now - job.phase_since >= kTurnPatience) make_room(turn, job);
    tell_wait(turn, job, fleet.queue.find_place(index_of(fleet, job)), {});
  } else if (fleet.sheet.scored == 0 && !is_retried) {
    const std::string reason = find_reason(fleet, job);
    const TimePoint since = std::max(job.nowhere_since, job.phase_since);
    if (turn.now - since >= patience_of(fleet.sheet, reason)) {
      std::string reasons = sheet_text(fleet, fleet.sheet, job.facts.labels);
      reasons.pop_back();  // one line, as errors are
      std::replace(reasons.begin(), reasons.end(), '\n', ',');
      if (!reason.empty()) reasons += "; it " + reason;
      fail(turn, job, ErrorCode::Unavailable,
           "nothing can run model '" + job.facts.model_name + "' for it: " + reasons);
      return Step::Gone;
    }
    const QueuePlace place = fleet.queue.find_place(index_of(fleet, job));
    tell_wait(turn, job, place, reason);
  }
  if (model.free_slots > 0) {
    park(fleet, job);
    return Step::Gone;
  }
  return Step::Blocked;
}

Step place_front(Turn& turn, Job& job) {
  const Decision decision = place_job(turn.fleet, job, turn.now);
  note_look(turn.fleet, job, decision, turn.now);
  switch (decision.choice) {
    case Choice::UseWorker:
      dispatch(turn, job, decision);
      return Step::Sent;
    case Choice::Load:
      start_load(turn, job, decision);
      return Step::Blocked;
    case Choice::TooLate:
      fail(turn, job, ErrorCode::DeadlineExceeded, "it would begin after its deadline");
      return Step::Gone;
    case Choice::Wait:
      if (decision.worker != kNone) return Step::Blocked;  // for one that is worth it
      return hold_or_fail(turn, job);
    case Choice::Refuse:
      return hold_or_fail(turn, job);
  }
  return Step::Blocked;
}

// Serves one line as long as somebody can be sent. Bounded by the slots and the jobs it ends.
bool pump_line(Turn& turn, LineIndex index) {
  Fleet& fleet = turn.fleet;
  bool has_sent = false;
  while (true) {
    const JobIndex front = fleet.queue.front(index, turn.now);
    if (front == kNone) return has_sent;
    Line& line = fleet.lines[index];
    const bool has_room = fleet.models[line.model].free_slots > 0;
    if (!has_room && turn.now < line.next_look) return has_sent;
    if (!has_room) line.next_look = turn.now + kLookPause;
    const Step step = place_front(turn, fleet.jobs[front]);
    if (step == Step::Blocked) {
      if (fleet.sheet.scored == 0) line.reason = find_reason(fleet, fleet.jobs[front]);
      return has_sent;
    }
    has_sent |= step == Step::Sent;
  }
}

}  // namespace

double predict_cost_s(const Fleet& fleet, const Job& job, std::uint64_t told) {
  const SpeedRow& row = fleet.speeds.row(fleet.models[job.model].speed);
  const double output =
      fleet.speeds.expected_output(job.facts.key, job.model, job.facts.max_tokens);
  const std::uint64_t prompt = std::max(job.prompt_tokens, job.facts.prompt_tokens);
  return static_cast<double>(prompt + told) / row.prefill_tps +
         output * std::max(1U, job.facts.choices) / row.decode_tps[0];
}

LineIndex line_for(Fleet& fleet, ModelIndex model, HostIndex pin, std::uint64_t labels) {
  const std::pair needs{model, std::pair{pin, labels}};
  if (const auto found = fleet.line_by_needs.find(needs); found != fleet.line_by_needs.end())
    return found->second;
  // Whoever asks for ever new combinations of labels shares a line with others of its model.
  if (fleet.lines.size() >= kLinesMax && !fleet.models[model].lines.empty())
    return fleet.models[model].lines.front();
  const auto index = static_cast<LineIndex>(fleet.lines.size());
  fleet.lines.push_back({.model = model, .pin = pin, .labels = labels});
  fleet.line_by_needs.emplace(needs, index);
  fleet.models[model].lines.push_back(index);
  return index;
}

void pump_model(Turn& turn, ModelIndex index) {
  Fleet& fleet = turn.fleet;
  if (index == kNone || turn.now < fleet.hold_until) return;
  const std::size_t count = fleet.models[index].lines.size();
  // Another line begins each time, so that none has the first choice for ever.
  const std::size_t first = fleet.models[index].next_line++;
  for (std::size_t i = 0; i < count; ++i)
    pump_line(turn, fleet.models[index].lines[(first + i) % count]);
}

void look_at_parked(Turn& turn) {
  Fleet& fleet = turn.fleet;
  std::vector<JobId> looked;
  const std::size_t count = std::min(fleet.parked.size(), kParkedPerLook);
  looked.assign(fleet.parked.begin(), fleet.parked.begin() + static_cast<std::ptrdiff_t>(count));
  fleet.parked.erase(fleet.parked.begin(),
                     fleet.parked.begin() + static_cast<std::ptrdiff_t>(count));
  for (const JobId& id : looked) {
    Job* job = find_job(fleet, id);
    if (job == nullptr || !std::exchange(job->is_parked, false)) continue;
    if (turn.now < fleet.hold_until || place_front(turn, *job) == Step::Blocked) {
      job = find_job(fleet, id);
      if (job == nullptr || job->is_parked || job->worker != kNone) continue;
      job->is_parked = true;
      fleet.parked.push_back(id);
    }
  }
}

ScoreSheet explain(const Fleet& fleet, const JobId& id, TimePoint now) {
  const Job* job = find_job(fleet, id);
  ScoreSheet sheet;
  if (job == nullptr) return sheet;
  const Model& model = fleet.models[job->model];
  place({.workers = model.views,
         .devices = model.devices,
         .speeds = &fleet.speeds,
         .line_ms = line_ms(fleet, *job),
         .now = now},
        view_of(fleet, *job, now, {}), sheet);
  return sheet;
}

}  // namespace llorch::fleet
