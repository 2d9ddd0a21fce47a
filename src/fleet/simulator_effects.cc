// The simulator's effects: what the world does when the orchestrator asks for something.
#include <algorithm>

#include "fleet/simulator.h"

namespace llorch::fleet {

void Simulator::append(JobWrite write) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  writes_.push_back(std::move(write));
  if (commit_is_due_) return;
  commit_is_due_ = true;
  schedule(some(1, 8), {.kind = Kind::Commit, .boot = fleet_->boot});
}

void Simulator::open_attempt(const AttemptOrder& order) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  SimJob& job = jobs_.at(order.attempt.job);
  if (job.is_open) broke("two live attempts of job " + text(job.id));
  if (job.end && job.facts.holder != Holder::Connection)
    broke("an attempt after the end of job " + text(job.id));
  if (!options_.has_crashes && job.killed >= kKillsMax)
    broke("a third worker for poison, job " + text(job.id));
  if (order.resumes != (job.told > 0 && job.facts.kind != JobKind::Embedding))
    broke("job " + text(job.id) + " resumes wrongly at " + std::to_string(job.told));
  naive_.note_attempt(order.attempt);
  job.attempt = order.attempt;
  job.is_open = true;
  job.began_at = job.told;
  job.worker = order.worker;
  for (std::size_t i = 0; i < kSimHosts; ++i) {
    if (hosts_[i].id == order.host) job.host = i;
  }
  SimHost& host = hosts_[job.host];
  const auto found = std::find_if(host.workers.rbegin(), host.workers.rend(),
                                  [&](const SimWorker& w) { return w.id == order.worker; });
  if (found == host.workers.rend() || found->is_dead || !host.has_link) {
    job.start = 0;
    job.is_open = false;
    send(some(1, 30),
         AttemptEnded{.attempt = order.attempt, .end = AttemptEnd::Lost, .told = job.told});
    return;
  }
  job.start = found->start;
  if (sim_model(found->model) != job.facts.model) broke("sent to a worker of another model");
  if (found->busy >= found->slots || (options_.has_faults && !has_quiet_ && dice_.one_in(50))) {
    job.start = 0;
    job.is_open = false;
    send(some(1, 5), AttemptEnded{.attempt = order.attempt,
                                  .end = AttemptEnd::Refused,
                                  .code = ErrorCode::QueueFull,
                                  .message = "full",
                                  .told = job.told});
    return;
  }
  ++found->busy;
  send(some(1, 20), AttemptStarted{order.attempt, job.facts.prompt_tokens, 0});
  const std::uint32_t left = job.length - std::min(job.length, job.told);
  schedule(Millis(30) + Millis(left * (5 + dice_() % 10)),
           {.kind = Kind::End,
            .boot = fleet_->boot,
            .event = AttemptEnded{.attempt = order.attempt},
            .job = job.id});
}

void Simulator::cut_attempt(const AttemptId& attempt) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  SimJob& job = jobs_.at(attempt.job);
  if (!job.is_open || job.attempt != attempt) return;  // its end is on its way
  if (SimWorker* worker = find_worker(job.host, job.worker, job.start); worker != nullptr)
    worker->busy -= worker->busy > 0 ? 1 : 0;
  job.start = 0;
  job.is_open = false;
  send(some(0, 60), AttemptEnded{.attempt = attempt, .end = AttemptEnd::Cut, .told = job.told});
}

void Simulator::start_worker(const HostId& host_id, const LoadPlan& plan) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  for (SimHost& host : hosts_) {
    if (host.id != host_id) continue;
    for (SimWorker& worker : host.workers) {
      const bool leaves = std::find(plan.first_stop.begin(), plan.first_stop.end(), worker.id) !=
                          plan.first_stop.end();
      if (leaves && worker.busy > 0) broke("a busy worker was thrown out");
      if (leaves) stop_it(worker);
    }
    LoadEnded ended{.host = host_id, .load = plan.load};
    if (!host.has_link || (options_.has_faults && !has_quiet_ && dice_.one_in(6))) {
      ended.error = Error{ErrorCode::LoadFailed, "the load failed"};
    } else {
      SimWorker worker{.start = next_start_++, .model = plan.model.low - 1};
      worker.id = ended.worker = "worker-" + std::to_string(worker.start);
      ended.start = worker.start;
      host.workers.push_back(worker);
    }
    return send(some(200, 3000), ended);
  }
}

void Simulator::stop_worker(const HostId& host_id, const WorkerId& id) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  for (SimHost& host : hosts_) {
    if (host.id != host_id) continue;
    for (SimWorker& worker : host.workers) {
      if (worker.id == id) stop_it(worker);
    }
  }
}

void Simulator::step_host(const HostId& host_id, HostAction action) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  for (SimHost& host : hosts_) {
    if (host.id != host_id) continue;
    const bool brings_up = action == HostAction::Start || action == HostAction::Connect;
    if (brings_up && host.has_link) host.is_up = true;
    if (options_.has_upgrades && action == HostAction::Start) cut_streams(host);
    const bool is_ok = host.has_link || action == HostAction::Stop;
    HostStepOutcome outcome{.ok = is_ok, .reason = is_ok ? "" : "no link"};
    if (!is_ok) outcome.link = dice_.one_in(2) ? Link::Broke : Link::Absent;
    outcome.is_new_version =
        options_.has_upgrades && action == HostAction::Install && dice_.one_in(2);
    return send(some(5, 300), HostStepEnded{host_id, action, std::move(outcome)});
  }
}

void Simulator::tell(const JobId& id, const JobNotice& notice) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  if (notice.kind != NoticeKind::Ended) return;
  SimJob& job = jobs_.at(id);
  const bool is_task = job.facts.holder != Holder::Connection;
  if (job.is_open) broke("the end of job " + text(id) + " was told while its attempt runs");
  if (is_task) {
    const auto* stored =
        job.records.empty() ? nullptr : std::get_if<EndedRecord>(&job.records.back());
    if (stored == nullptr || stored->state != notice.end.state)
      broke("job " + text(id) + " was told an end that is not durable");
    if (job.end && job.end->state != notice.end.state)
      broke("job " + text(id) + " was told two ends");
  }
  const std::string wrong = naive_.judge(id, notice.end);
  if (!wrong.empty() && !job.end) broke("job " + text(id) + ": " + wrong);
  if (!job.end && job.was_promised) {
    --live_;
    ++result_.ends[notice.end.state];
  }
  job.end = notice.end;
}

void Simulator::answer(RequestId request, const Reply& reply) {
  if (has_crashed_) return;
  if (--effects_until_crash_ == 0) has_crashed_ = true;
  if (request == 0) return broke("an answer to nobody");
  SimJob& job = jobs_.at(reply.job);
  if (!reply.status.ok()) {
    ++result_.refused;
    return;
  }
  if (job.was_promised) broke("job " + text(job.id) + " was promised twice");
  if (job.facts.holder != Holder::Connection && job.records.empty())
    broke("job " + text(job.id) + " was promised before it was durable");
  job.was_promised = true;
  ++live_;
}

void Simulator::keep(Bucket, const std::string&, const std::string&) {}

}  // namespace llorch::fleet
