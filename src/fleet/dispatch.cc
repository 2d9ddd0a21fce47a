// From the front of a line to a worker, or to a load that makes one.
#include <algorithm>
#include <limits>

#include "fleet/decide.h"
#include "fleet/eviction.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr Millis kLookPause{1000};  // between two considerations of a load for one line
constexpr std::size_t kLinesMax = 4096;
constexpr std::size_t kParkedPerLook = 64;
constexpr std::size_t kLinesInText = 8;
constexpr std::size_t kNamesOfRefusal = 4;  // further ones are only counted
constexpr double kGuessedLinkBytesPerSecond = 20e6;
constexpr double kDrainMs = 500;  // an idle worker leaves quickly
constexpr double kBytesPerToken = 4;

// "anna worker-cpu-0", "anna load on device 0".
std::string name_candidate(const Fleet& fleet, const ScoreLine& line) {
  const std::string host = fleet.hosts[line.host].id + ' ';
  if (line.worker == kNone)
    return host + "load on device " + std::to_string(fleet.devices[line.device].number);
  const WorkerId& worker = fleet.workers[line.worker].id;
  return host + (worker.empty() ? "(loading)" : worker);
}

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
                       .age_s = millis_between(worker.ready_at, now) / 1000,
                       .is_busy = !worker.running.empty() || worker.state != SeenState::Serving,
                       .is_pinned = worker.is_pinned});
  }
  return tenants;
}

// As its pool saw it, less what was ordered since, and with what has been told to leave.
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

// One that hangs, leaves or loses jobs does not count: another may take its place.
bool takes_jobs_on(const Fleet& fleet, const Worker& worker, const Device& device,
                   ModelIndex model) {
  if (worker.model != model || worker.view == kNone || worker.is_leaving) return false;
  if (worker.state != SeenState::Serving || worker.device == kNone) return false;
  if (fleet.devices[worker.device].number != device.number) return false;
  const WorkerView& view = fleet.models[model].views[worker.view];
  return view.closed == Refusal::None && !view.is_paused;
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
    const auto leaving = choose_evictions(tenants_of(fleet, index, now), missing);
    if (!leaving) view.closed = Refusal::MemoryInUse;
    view.load_ms += kDrainMs;
  }
  return view;
}

// At most once a second for each model: loads take longer than that anyway.
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

// Since when nobody could take it. A worker that serves ends that, a load alone does not: loads may
// fail one after the other. Those behind a front that could go nowhere have waited as long as it.
void note_look(Fleet& fleet, Job& job, const Decision& decision, TimePoint now) {
  Line& line = fleet.lines[job.line];
  const bool is_served =
      decision.worker != kNone && fleet.workers[decision.worker].state == SeenState::Serving;
  if (is_served) {
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
  if (fleet.sheet.scored == 0 && !is_retried) {
    const std::string reason = find_reason(fleet, job);
    const TimePoint since = std::max(job.nowhere_since, job.phase_since);
    if (turn.now - since >= patience_of(fleet.sheet, reason)) {
      std::string reasons = sheet_text(fleet, fleet.sheet);
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

std::vector<std::string> name_refused(const Fleet& fleet, const ScoreSheet& sheet,
                                      Refusal refusal) {
  std::vector<std::string> names;
  for (const ScoreLine& line : sheet.refused) {
    if (line.refusal != refusal) continue;
    if (names.size() == kNamesOfRefusal) break;
    names.push_back(name_candidate(fleet, line));
  }
  return names;
}

std::string sheet_text(const Fleet& fleet, const ScoreSheet& sheet) {
  const auto ms = [](float value) { return std::to_string(static_cast<std::int64_t>(value)); };
  std::string text;
  for (std::size_t i = 0; i < std::min(sheet.best.size(), kLinesInText); ++i) {
    const ScoreLine& line = sheet.best[i];
    text += name_candidate(fleet, line) + ": finish " + ms(line.finish_ms) + " = wait " +
            ms(line.wait_ms) + " + load " + ms(line.load_ms) + " + prefill " + ms(line.prefill_ms) +
            " + decode " + ms(line.decode_ms) + " + harm " + ms(line.harm_ms) + " ms\n";
  }
  if (sheet.scored > kLinesInText)
    text += std::to_string(sheet.scored - kLinesInText) + " more candidates\n";
  for (std::size_t i = 1; i < kRefusals; ++i) {
    if (sheet.refusals[i] == 0) continue;
    text += std::to_string(sheet.refusals[i]) + " refused: ";
    text += name(static_cast<Refusal>(i));
    const std::vector<std::string> names = name_refused(fleet, sheet, static_cast<Refusal>(i));
    for (std::size_t n = 0; n < names.size(); ++n) text += (n == 0 ? " (" : ", ") + names[n];
    if (!names.empty()) text += sheet.refusals[i] > names.size() ? ", …)" : ")";
    text += '\n';
  }
  return text.empty() ? "no worker and no device for this model\n" : text;
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
