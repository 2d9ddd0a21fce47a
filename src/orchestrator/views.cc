#include "orchestrator/views.h"

#include <algorithm>
#include <chrono>

#include "base/enum_names.h"
#include "base/timestamp.h"
#include "contract/error_table.h"
#include "fleet/job_fold.h"

namespace llorch::orchestrator {
namespace {

constexpr std::size_t kTasksInStatus = 100;

void fill_facts(const fleet::JobId& id, const fleet::SubmittedRecord& facts,
                contract::TaskView& view) {
  view.job_id = fleet::text(id);
  view.status = fleet::name(fleet::JobState::Queued);
  view.kind = fleet::name(facts.kind);
  view.cls = fleet::name(facts.cls);
  view.holder = fleet::name(facts.holder);
  view.model = facts.model_name;
  view.model_hash = fleet::text(facts.model);
  view.key = facts.key.value == 0 ? std::string() : fleet::text(facts.key);
  view.mode = fleet::name(facts.mode);
  view.host = facts.pin_host;
  view.labels = facts.labels;
  view.submitted_at = time_text(facts.submitted_ms);
  view.deadline = time_text(facts.deadline_ms);
  view.seed = facts.seed;
  view.prompt_tokens = facts.prompt_tokens;
  view.correlation_id = facts.correlation_id;
  view.events_url = events_url(id);
}

template <class Record>
contract::TaskAttempt* find_attempt(contract::TaskView& view, const Record& record) {
  for (contract::TaskAttempt& one : view.attempts) {
    if (one.number == record.attempt && one.boot == static_cast<std::int64_t>(record.boot))
      return &one;
  }
  return nullptr;
}

struct RecordViewer {
  contract::TaskView& view;

  void operator()(const fleet::SubmittedRecord&) const {}
  void operator()(const fleet::StopRecord&) const {}
  void operator()(const fleet::DispatchedRecord& record) const {
    contract::TaskAttempt attempt;
    attempt.boot = static_cast<std::int64_t>(record.boot);
    attempt.number = record.attempt;
    attempt.host = record.host;
    attempt.worker = record.worker;
    attempt.dispatched_at = time_text(record.at_ms);
    view.attempts.push_back(std::move(attempt));
  }
  void operator()(const fleet::StartedRecord& record) const {
    if (contract::TaskAttempt* attempt = find_attempt(view, record)) {
      attempt->started_at = time_text(record.at_ms);
      attempt->cached_tokens = record.cached_tokens;
    }
  }
  void operator()(const fleet::LostRecord& record) const {
    if (contract::TaskAttempt* attempt = find_attempt(view, record)) {
      attempt->lost_at = time_text(record.at_ms);
      attempt->cause = fleet::name(record.cause);
    }
  }
  void operator()(const fleet::EndedRecord& record) const {
    view.ended_at = time_text(record.at_ms);
    view.stop_reason = record.stop_reason;
    view.prompt_tokens = record.prompt_tokens;
    view.tokens_out = record.tokens_out;
    view.device_ms = record.device_ms;
    if (record.state == fleet::JobState::Completed) return;
    view.code = contract::error_row(record.code).wire;
    view.message = record.message;
  }
};

std::string_view name(fleet::SeenState state) {
  static constexpr base::EnumNames<fleet::SeenState::Ended> kNames("loading", "serving", "draining",
                                                                   "ended");
  return kNames[state];
}

std::string_view name(fleet::HostKind kind) {
  static constexpr base::EnumNames<fleet::HostKind::Joined> kNames("local", "ssh", "joined");
  return kNames[kind];
}

void fill_details(const HostDetails& details, contract::HostView& view) {
  view.pool_url = details.pool.url;
  view.pool_id = details.pool_id;
  view.version = details.version;
  view.os = details.host.os;
  view.cpu = details.host.cpu;
  view.cores = details.host.cores;
  view.labels = details.labels;
}

contract::HostView view_host(const fleet::Fleet& fleet, const fleet::Host& host,
                             const FindDetails& details, fleet::TimePoint now) {
  contract::HostView view;
  view.name = host.id;
  view.kind = name(host.facts.kind);
  view.state = fleet::name(host.facts.state);
  view.reason = host.facts.reason;
  view.note = host.facts.note;
  if (host.facts.under_way) view.step = fleet::name(*host.facts.under_way);
  view.since = time_text(fleet::wall_ms(fleet, host.facts.since));
  view.disk_free_bytes = host.disk_free_bytes;
  const HostDetails* known = details(host.id);
  if (known != nullptr) fill_details(*known, view);
  for (const fleet::DeviceIndex index : host.devices) {
    const fleet::Device& device = fleet.devices[index];
    contract::FleetDevice shown;
    shown.number = device.number;
    shown.name = std::string(backend_of_device(device.number));
    if (known != nullptr) {
      for (const contract::PoolDevice& one : known->devices) {
        if (one.number == shown.number && !one.name.empty()) shown.name = one.name;
      }
    }
    shown.total_bytes = device.seen.total_bytes;
    shown.free_bytes = device.seen.free_bytes;
    view.devices.push_back(std::move(shown));
  }
  view.workers = static_cast<std::int64_t>(host.workers.size());
  view.models = std::count_if(host.models.begin(), host.models.end(),
                              [](const auto& model) { return model.second.missing_bytes == 0; });
  for (const fleet::WorkerIndex worker : host.workers)
    view.running += static_cast<std::int64_t>(fleet.workers[worker].running.size());
  static_cast<void>(now);
  return view;
}

contract::FleetModel view_model(const fleet::Fleet& fleet, const fleet::Model& model,
                                fleet::ModelIndex index) {
  contract::FleetModel view;
  view.name = model.name;
  view.hash = fleet::text(model.hash);
  view.size_bytes = model.weight_bytes;
  view.load_error = model.load_error;
  for (const fleet::LineIndex line : model.lines)
    view.waiting += static_cast<std::int64_t>(fleet.queue.waiting(line));
  for (const fleet::HostIndex host : model.hosts) {
    const auto seen = fleet.hosts[host].models.find(index);
    if (seen == fleet.hosts[host].models.end()) continue;
    contract::ModelPlace place;
    place.host = fleet.hosts[host].id;
    place.downloaded = seen->second.missing_bytes == 0;
    place.missing_bytes = seen->second.missing_bytes;
    for (const fleet::WorkerView& worker : model.views) {
      if (worker.host == host && !worker.is_loading) ++place.workers;
    }
    view.context = std::max<std::int64_t>(view.context, seen->second.context);
    view.places.push_back(std::move(place));
  }
  return view;
}

contract::FleetWorker view_worker(const fleet::Fleet& fleet, const fleet::Worker& worker,
                                  fleet::TimePoint now) {
  contract::FleetWorker view;
  const fleet::Model& model = fleet.models[worker.model];
  const fleet::WorkerView& facts = model.views[worker.view];
  const fleet::SpeedRow& speed = fleet.speeds.row(facts.speed);
  view.id = worker.id;
  view.host = fleet.hosts[worker.host].id;
  view.model = model.name;
  view.state = name(worker.state);
  view.device = fleet.devices[worker.device].number;
  view.slots = facts.slots;
  view.busy = static_cast<std::int64_t>(worker.running.size());
  view.context = facts.context;
  view.memory_bytes = worker.bytes;
  view.pinned = worker.is_pinned;
  view.leaving = worker.is_leaving;
  if (worker.running.empty() && worker.state == fleet::SeenState::Serving)
    view.idle_seconds = fleet::millis_between(worker.idle_since, now) / 1000;
  if (!speed.is_guess()) {
    view.decode_tps = speed.decode_tps[0];
    view.prefill_tps = speed.prefill_tps;
  }
  return view;
}

}  // namespace

std::string time_text(fleet::UnixMs ms) {
  if (ms == 0) return {};
  return base::to_rfc3339(std::chrono::system_clock::time_point(std::chrono::milliseconds(ms)));
}

std::string events_url(const fleet::JobId& job) {
  return "/v2/tasks/" + fleet::text(job) + "/events";
}

Result<contract::TaskView> view_of_records(const fleet::JobRecords& records) {
  const Result<fleet::FoldedJob> job = fleet::fold_job(records);
  if (!job.ok()) return job.error();
  contract::TaskView view;
  fill_facts(job->id, job->facts, view);
  view.status = fleet::name(job->state);
  if (!job->host.empty()) view.host = job->host;
  view.worker = job->worker;
  view.tokens_out = static_cast<std::int64_t>(job->stored.total());
  if (job->prompt_tokens > 0) view.prompt_tokens = job->prompt_tokens;
  for (const fleet::Record& record : records.records) std::visit(RecordViewer{view}, record);
  return view;
}

void add_live(const fleet::Fleet& fleet, const fleet::Job& job, fleet::TimePoint now,
              contract::TaskView& view) {
  view.status = fleet::name(fleet::shown_state(job.phase));
  view.tokens_out = static_cast<std::int64_t>(job.told);
  view.prompt_tokens = job.prompt_tokens;
  if (job.worker != fleet::kNone) {
    const fleet::Worker& worker = fleet.workers[job.worker];
    view.host = fleet.hosts[worker.host].id;
    view.worker = worker.id;
  }
  const fleet::QueuePlace place = fleet.queue.find_place(fleet::index_of(fleet, job));
  if (place.position > 0) {
    view.queue_position = place.position;
    view.waits_for = fleet.lines[job.line].reason;
    // Of now: nobody tells a job without followers what has changed since it came.
    if (view.waits_for.empty())
      view.predicted_start_ms = fleet::predict_wait_ms(fleet, job, place.ahead_s, now);
  }
}

contract::TaskView view_of_live(const fleet::Fleet& fleet, const fleet::Job& job,
                                fleet::TimePoint now) {
  contract::TaskView view;
  fill_facts(job.id, job.facts, view);
  add_live(fleet, job, now, view);
  return view;
}

contract::WhyView explain_job(const fleet::Fleet& fleet, const fleet::Job& job,
                              fleet::TimePoint now) {
  contract::WhyView view;
  view.job_id = fleet::text(job.id);
  view.status = fleet::name(fleet::shown_state(job.phase));
  const fleet::ScoreSheet sheet = fleet::explain(fleet, job.id, now);
  for (const fleet::ScoreLine& line : sheet.best) {
    contract::WhyLine shown;
    shown.host = fleet.hosts[line.host].id;
    if (line.worker != fleet::kNone) {
      shown.worker = fleet.workers[line.worker].id;
      shown.device = fleet.devices[fleet.workers[line.worker].device].number;
    } else {
      shown.device = fleet.devices[line.device].number;
    }
    shown.finish_ms = line.finish_ms;
    shown.wait_ms = line.wait_ms;
    shown.load_ms = line.load_ms;
    shown.prefill_ms = line.prefill_ms;
    shown.decode_ms = line.decode_ms;
    shown.harm_ms = line.harm_ms;
    view.candidates.push_back(std::move(shown));
  }
  for (std::size_t i = 1; i < fleet::kRefusals; ++i) {
    if (sheet.refusals[i] == 0) continue;
    const auto refusal = static_cast<fleet::Refusal>(i);
    view.refused.push_back({fleet::describe_refusal(fleet, sheet, refusal, job.facts.labels),
                            sheet.refusals[i], fleet::name_refused(fleet, sheet, refusal)});
  }
  view.sheet = fleet::sheet_text(fleet, sheet, job.facts.labels);
  return view;
}

void add_dispatches(const fleet::JobRecords& records, contract::WhyView& view) {
  for (const fleet::Record& record : records.records) {
    if (const auto* end = std::get_if<fleet::EndedRecord>(&record); end && !end->why.empty())
      view.sheet += (view.sheet.empty() ? "" : "\n") + end->why;
    const auto* sent = std::get_if<fleet::DispatchedRecord>(&record);
    if (sent == nullptr) continue;
    view.dispatches.push_back(
        {sent->attempt, sent->host, sent->worker, time_text(sent->at_ms), sent->why});
  }
}

contract::HostList list_hosts(const fleet::Fleet& fleet, const FindDetails& details,
                              fleet::TimePoint now) {
  contract::HostList list;
  for (const fleet::Host& host : fleet.hosts)
    list.hosts.push_back(view_host(fleet, host, details, now));
  return list;
}

contract::FleetModelList list_models(const fleet::Fleet& fleet) {
  contract::FleetModelList list;
  for (fleet::ModelIndex index = 0; index < fleet.models.size(); ++index) {
    const fleet::Model& model = fleet.models[index];
    if (model.hosts.empty() && model.views.empty()) continue;
    list.models.push_back(view_model(fleet, model, index));
  }
  std::sort(list.models.begin(), list.models.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

contract::FleetWorkerList list_workers(const fleet::Fleet& fleet, fleet::TimePoint now) {
  contract::FleetWorkerList list;
  for (const fleet::Host& host : fleet.hosts) {
    std::vector<fleet::WorkerIndex> oldest_first = host.workers;
    std::sort(oldest_first.begin(), oldest_first.end(),
              [&fleet](fleet::WorkerIndex a, fleet::WorkerIndex b) {
                return fleet.workers[a].life < fleet.workers[b].life;
              });
    for (const fleet::WorkerIndex worker : oldest_first)
      list.workers.push_back(view_worker(fleet, fleet.workers[worker], now));
  }
  return list;
}

contract::FleetStatus make_status(const fleet::Fleet& fleet, const FindDetails& details,
                                  fleet::TimePoint now) {
  contract::FleetStatus status;
  status.boot = static_cast<std::int64_t>(fleet.boot);
  const fleet::FleetCounters& counters = fleet.counters;
  status.submitted_total = static_cast<std::int64_t>(counters.submitted);
  status.completed_total = static_cast<std::int64_t>(counters.completed);
  status.failed_total = static_cast<std::int64_t>(counters.failed);
  status.cancelled_total = static_cast<std::int64_t>(counters.cancelled);
  status.refused_total = static_cast<std::int64_t>(counters.refused);
  status.moves_total = static_cast<std::int64_t>(counters.moves);
  status.jobs_max = static_cast<std::int64_t>(fleet.limits.jobs_max);
  for (const fleet::Job& job : fleet.jobs) {
    if (!fleet.job_by_id.contains(job.id)) continue;
    const bool waits = fleet::shown_state(job.phase) == fleet::JobState::Queued;
    ++(waits ? status.queued : status.running);
    if (job.facts.holder == fleet::Holder::Connection) ++status.attached;
    if (status.tasks.size() < kTasksInStatus) status.tasks.push_back(view_of_live(fleet, job, now));
  }
  status.hosts = list_hosts(fleet, details, now).hosts;
  status.workers = list_workers(fleet, now).workers;
  for (contract::FleetModel& model : list_models(fleet).models) {
    const bool is_used = model.waiting > 0 || std::any_of(model.places.begin(), model.places.end(),
                                                          [](const contract::ModelPlace& place) {
                                                            return place.downloaded;
                                                          });
    if (is_used) status.models.push_back(std::move(model));
  }
  return status;
}

}  // namespace llorch::orchestrator
