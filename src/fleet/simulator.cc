#include "fleet/simulator.h"

#include <algorithm>
#include <array>

namespace llorch::fleet {
namespace {

constexpr std::size_t kModels = 2;
constexpr Millis kTick{250};
constexpr Millis kReportEvery{5000};
constexpr std::int64_t kDeviceBytes = 12;
constexpr std::int64_t kModelBytes = 5;
constexpr std::uint64_t kEventsMax = 300'000;
constexpr UnixMs kWallZero = 1'700'000'000'000;

UnixMs wall_at(TimePoint now) {
  return kWallZero + std::chrono::duration_cast<Millis>(now.time_since_epoch()).count();
}

}  // namespace

Simulator::Simulator(SimOptions options) : options_(options), dice_(options.seed) {
  fleet_ = std::make_unique<Fleet>(
      FleetLimits{.jobs_max = 150, .prefix_entries = 64, .keeps_why = false});
  for (std::size_t i = 0; i < kSimHosts; ++i) hosts_.push_back({.id = "host" + std::to_string(i)});
}

void Simulator::broke(std::string what) {
  if (result_.broken.empty()) result_.broken = std::move(what);
}

void Simulator::schedule(Millis after, Pending pending) {
  std::uint32_t index = static_cast<std::uint32_t>(pending_.size());
  if (free_pending_.empty()) {
    pending_.push_back(std::move(pending));
  } else {
    index = free_pending_.back();
    free_pending_.pop_back();
    pending_[index] = std::move(pending);
  }
  due_.push({now_ + after, next_order_++, index});
}

// An event inside the orchestrator: dies with it.
void Simulator::send(Millis after, Event event) {
  schedule(after, {.kind = Kind::Deliver, .boot = fleet_->boot, .event = std::move(event)});
}

void Simulator::feed(const Event& event) {
  ++result_.events;
  naive_.note_event(event, now_);
  decide(*fleet_, event, now_, *this);
  if (has_crashed_) crash();
}

SimResult Simulator::run() {
  begin_recovery(*fleet_, wall_at(now_), now_);
  for (const SimHost& host : hosts_) feed(HostAsked{host.id, HostKind::Ssh, HostWish::Up});
  schedule(Millis(0), {.kind = Kind::Deliver, .event = Tick{}});
  schedule(Millis(10), {.kind = Kind::Submit});
  for (std::size_t i = 0; i < kSimHosts; ++i)
    schedule(Millis(500), {.kind = Kind::Report, .host = i});
  if (options_.has_faults) schedule(some(1000, 5000), {.kind = Kind::Fault});
  while (!due_.empty() && result_.broken.empty() && !is_done()) {
    if (result_.events > kEventsMax) broke("jobs are stuck: " + std::to_string(live_) + " live");
    const Due due = due_.top();
    due_.pop();
    now_ = due.at;
    Pending pending = std::move(pending_[due.what]);
    free_pending_.push_back(due.what);
    if (pending.boot != 0 && pending.boot != fleet_->boot) continue;
    perform(pending);
  }
  check_at_end();
  result_.counters = fleet_->counters;
  return result_;
}

bool Simulator::is_done() const {
  return submitted_ >= options_.jobs && live_ == 0 && fleet_->job_by_id.empty() && writes_.empty();
}

void Simulator::perform(Pending& pending) {
  switch (pending.kind) {
    case Kind::Deliver:
      if (auto* tick = std::get_if<Tick>(&pending.event)) {
        tick->wall_ms = wall_at(now_);
        schedule(kTick, {.kind = Kind::Deliver, .event = Tick{}});
      }
      feed(pending.event);
      return;
    case Kind::Commit:
      return commit();
    case Kind::Submit:
      submit_one();
      if (submitted_ < options_.jobs) {
        schedule(some(1, 400), {.kind = Kind::Submit});
      } else {
        has_quiet_ = true;
        for (SimHost& host : hosts_) host.has_link = true;
      }
      return;
    case Kind::Report:
      report(pending.host);
      return schedule(kReportEvery, {.kind = Kind::Report, .host = pending.host});
    case Kind::Fault:
      if (has_quiet_) return;
      break_something();
      return schedule(some(300, 6000), {.kind = Kind::Fault});
    case Kind::End:
      return end_naturally(pending.job, std::get<AttemptEnded>(pending.event).attempt);
    case Kind::Stop:
      feed(pending.event);
      return;
  }
}

void Simulator::submit_one() {
  const std::uint32_t n = submitted_++;
  SimJob job;
  job.id = {options_.seed, n + 1};
  const std::uint32_t nature = dice_() % 40;
  job.nature = nature == 0 && options_.has_faults ? Nature::Poison
               : nature < 3                       ? Nature::Bad
                                                  : Nature::Good;
  job.length = 1 + dice_() % 60;
  job.facts = {.key = {dice_() % 3},
               .kind = dice_.one_in(10) ? JobKind::Embedding : JobKind::Execute,
               .cls = dice_.one_in(3) ? JobClass::Batch : JobClass::Interactive,
               .holder = static_cast<Holder>(dice_() % 3),
               .model = sim_model(dice_() % kModels),
               .model_name = "m",
               .submitted_ms = wall_at(now_),
               .prompt_tokens = 1 + dice_() % 100,
               .max_tokens = 60,
               .body_bytes = 100};
  if (dice_.one_in(8)) job.facts.deadline_ms = wall_at(now_) + 500 + dice_() % 30000;
  if (dice_.one_in(10)) {
    job.facts.mode = Mode::Pin;
    job.facts.pin_host = hosts_[dice_() % kSimHosts].id;
  } else if (dice_.one_in(3)) {
    job.facts.mode = Mode::Spread;
  }
  const Submitted event{.request = n + 1,
                        .job = job.id,
                        .facts = job.facts,
                        .prefix = {dice_() % 8 + 1, dice_() % 64 + 100}};
  if (dice_.one_in(9)) {
    schedule(some(0, 5000), {.kind = Kind::Stop, .event = StopAsked{job.id, StopCause::Asked, 0}});
    if (dice_.one_in(2)) {  // twice
      schedule(some(0, 5000),
               {.kind = Kind::Stop, .event = StopAsked{job.id, StopCause::Asked, 0}});
    }
  }
  if (job.facts.holder == Holder::Followed && !dice_.one_in(8))
    schedule(some(1, 4000), {.kind = Kind::Stop, .event = FollowersChanged{job.id, 1}});
  if (job.facts.holder == Holder::Followed && dice_.one_in(6)) {
    schedule(some(10, 3000), {.kind = Kind::Stop, .event = FollowersChanged{job.id, 0}});
    if (dice_.one_in(2))
      schedule(some(3000, 12000), {.kind = Kind::Stop, .event = FollowersChanged{job.id, 1}});
  }
  job_ids_.push_back(job.id);
  jobs_.emplace(job.id, std::move(job));
  feed(event);
}

// One group: all that waits becomes durable at once, and the outcomes come together.
void Simulator::commit() {
  commit_is_due_ = false;
  const bool disk_fails = options_.has_faults && !has_quiet_ && dice_.one_in(60);
  std::vector<JobWrite> writes = std::exchange(writes_, {});
  for (JobWrite& write : writes) {
    SimJob& job = jobs_.at(write.job);
    const bool has_ended =
        !job.records.empty() && std::holds_alternative<EndedRecord>(job.records.back());
    Written written{write.job, write.expected_seq, WriteOutcome::Durable};
    if (disk_fails) {
      written.outcome = WriteOutcome::Failed;
    } else if (has_ended || job.records.size() != write.expected_seq) {
      written.outcome = WriteOutcome::Conflict;
    } else {
      job.records.push_back(std::move(write.record));
    }
    if (!disk_fails) job.stored = job.told;
    send(Millis(0), written);
  }
}

// Everything that is not durable is gone; workers go on until the new boot's fence cuts them.
void Simulator::crash() {
  ++result_.crashes;
  has_crashed_ = false;
  effects_until_crash_ = ~std::uint64_t{0};
  // A group may have become durable whose outcome nobody heard.
  if (dice_.one_in(2)) commit();
  writes_.clear();
  commit_is_due_ = false;
  const Boot boot = fleet_->boot + 1;
  fleet_ = std::make_unique<Fleet>(fleet_->limits, boot);
  for (SimHost& host : hosts_) {
    host.is_up = false;
    for (SimWorker& worker : host.workers) worker.busy = 0;
  }
  now_ += some(10, 2000);
  naive_.note_crash(now_);
  begin_recovery(*fleet_, wall_at(now_), now_);
  for (const SimHost& host : hosts_)
    decide(*fleet_, HostAsked{host.id, HostKind::Ssh, HostWish::Up}, now_, *this);
  for (const JobId& id : job_ids_) {
    SimJob& job = jobs_.at(id);
    job.is_open = false;
    job.told = job.stored;
    if (job.records.empty() && !job.end && job.facts.holder != Holder::Connection &&
        job.was_promised) {
      broke("job " + text(id) + " was promised and is not in the store");
    }
    // The client of a connection sees it break.
    if (job.facts.holder == Holder::Connection && job.was_promised && !job.end) {
      job.end = EndedRecord{.state = JobState::Cancelled};
      ++result_.ends[JobState::Cancelled];
      --live_;
    }
    if (job.records.empty()) continue;
    // Whoever asks now reads the end from the store.
    const auto* end = std::get_if<EndedRecord>(&job.records.back());
    if (end != nullptr && job.was_promised && !job.end) {
      job.end = *end;
      ++result_.ends[end->state];
      --live_;
    }
    if (job.facts.holder == Holder::Followed && !dice_.one_in(4)) {
      schedule(some(10, 20000), {.kind = Kind::Stop, .event = FollowersChanged{id, 1}});
    }
    JobRecords records{.job = id, .records = job.records, .stored = {{job.stored}}};
    const Status status = recover_job(*fleet_, records, now_, *this);
    if (!status.ok()) broke(status.error().message);
  }
}

Simulator::SimWorker* Simulator::find_worker(std::size_t host, const WorkerId& id,
                                             std::uint32_t start) {
  for (SimWorker& worker : hosts_[host].workers) {
    if (worker.id == id && worker.start == start && start != 0) return &worker;
  }
  return nullptr;
}

// The attempt is over for the relay; the owner hears of it.
void Simulator::close_attempt(SimJob& job, AttemptEnded end) {
  if (!job.is_open || job.attempt != end.attempt) return;
  if (SimWorker* worker = find_worker(job.host, job.worker, job.start); worker != nullptr)
    worker->busy -= worker->busy > 0 ? 1 : 0;
  job.start = 0;
  job.is_open = false;
  end.told = job.told;
  end.new_tokens = job.told - job.began_at;
  end.prompt_tokens = job.facts.prompt_tokens;
  end.prefill_ms = 20;
  end.decode_ms = 10.0 * end.new_tokens;
  send(Millis(0), end);
  if (options_.has_faults && dice_.one_in(20)) send(some(0, 100), end);  // and once more
}

void Simulator::end_naturally(const JobId& id, const AttemptId& attempt) {
  SimJob& job = jobs_.at(id);
  if (!job.is_open || job.attempt != attempt) return;
  SimHost& host = hosts_[job.host];
  SimWorker* worker = find_worker(job.host, job.worker, job.start);
  if (worker == nullptr) return;
  if (job.nature == Nature::Bad) {
    return close_attempt(job, {.attempt = attempt,
                               .end = AttemptEnd::Failed,
                               .code = ErrorCode::InvalidArgument,
                               .message = "bad"});
  }
  if (job.nature == Nature::Poison) {
    job.told = std::min(job.length, job.told + 2);
    if (host.has_link) ++job.killed;  // else nobody is told of it
    return kill_worker(host, *worker, LossCause::Crash);
  }
  job.told = job.length;
  close_attempt(job, {.attempt = attempt, .end = AttemptEnd::Completed, .stop_reason = "eos"});
}

void Simulator::kill_worker(SimHost& host, SimWorker& worker, LossCause cause) {
  worker.is_dead = true;
  worker.died_at = now_;
  worker.cause = cause;
  for (const JobId& id : job_ids_) {
    SimJob& job = jobs_.at(id);
    const bool was_there = job.is_open && &hosts_[job.host] == &host && job.worker == worker.id &&
                           job.start == worker.start;
    if (!was_there) continue;
    if (job.nature == Nature::Good) job.told = std::min(job.length - 1, job.told + dice_() % 12);
    AttemptEnded end{.attempt = job.attempt, .end = AttemptEnd::Lost};
    if (dice_.one_in(2)) end.cause = cause;
    close_attempt(job, end);
  }
  if (host.has_link) send(some(10, 2000), make_report(host));
}

void Simulator::cut_streams(const SimHost& host) {
  for (const JobId& id : job_ids_) {
    SimJob& job = jobs_.at(id);
    if (job.is_open && job.start != 0 && &hosts_[job.host] == &host)
      close_attempt(job, {.attempt = job.attempt, .end = AttemptEnd::Lost});
  }
}

PoolSeen Simulator::make_report(SimHost& host) {
  PoolSeen seen{.host = host.id, .revision = ++host.revision, .disk_free_bytes = 1000};
  std::int64_t free = kDeviceBytes;
  for (const SimWorker& worker : host.workers) {
    if (!worker.is_dead) free -= kModelBytes;
    seen.workers.push_back({.id = worker.id,
                            .start = worker.start,
                            .model = sim_model(worker.model),
                            .state = worker.is_dead ? SeenState::Ended : SeenState::Serving,
                            .cause = worker.cause,
                            .slots = 2,
                            .context = 4096,
                            .bytes = kModelBytes,
                            .exactness = 1});
  }
  seen.devices = {{0, kDeviceBytes, free, 50e9}};
  for (std::size_t model = 0; model < kModels; ++model) {
    seen.models.push_back({.model = sim_model(model),
                           .name = "m",
                           .weight_bytes = 1'000'000'000,
                           .need_bytes = kModelBytes,
                           .context = 4096,
                           .devices = 1});
  }
  return seen;
}

void Simulator::report(std::size_t index) {
  SimHost& host = hosts_[index];
  std::erase_if(host.workers, [&](const SimWorker& w) {
    return w.is_dead && now_ - w.died_at > std::chrono::seconds(60);
  });
  if (!host.has_link || !host.is_up) return;
  const bool is_odd = options_.has_faults && !has_quiet_;
  // Late, in the wrong order, twice.
  send(is_odd && dice_.one_in(10) ? some(0, 8000) : some(0, 50), make_report(host));
  if (is_odd && dice_.one_in(10)) send(some(0, 4000), make_report(host));
  Progress progress;
  for (const JobId& id : job_ids_) {
    SimJob& job = jobs_.at(id);
    if (!job.is_open || job.start == 0) continue;
    if (job.nature == Nature::Good) job.told = std::min(job.length - 1, job.told + dice_() % 4);
    progress.items.push_back({job.attempt, job.told, 0, 0});
  }
  if (!progress.items.empty()) feed(progress);
}

void Simulator::break_something() {
  SimHost& host = hosts_[dice_() % kSimHosts];
  switch (dice_() % 6) {
    case 0:
    case 1:
      if (host.workers.empty()) return;
      if (SimWorker& worker = host.workers[dice_() % host.workers.size()]; !worker.is_dead)
        kill_worker(host, worker, dice_.one_in(3) ? LossCause::OutOfMemory : LossCause::Crash);
      return;
    case 2: {  // the link breaks: streams are cut, polls fail
      host.has_link = !host.has_link;
      if (host.has_link) return;
      host.is_up = false;
      cut_streams(host);
      send(some(0, 15000), PoolLost{host.id, "tunnel down"});
      return;
    }
    case 3:
      host.has_link = true;
      return;
    case 4:
      if (options_.has_crashes) effects_until_crash_ = 1 + dice_() % 40;
      return;
    default:
      if (options_.has_upgrades) feed(HostAsked{host.id, HostKind::Ssh, HostWish::Up});
      return;
  }
}

void Simulator::check_at_end() {
  if (!result_.broken.empty()) return;
  if (!is_done()) return broke("the world ended with " + std::to_string(live_) + " live jobs");
  for (const JobId& id : job_ids_) {
    const SimJob& job = jobs_.at(id);
    if (job.was_promised && !job.end) broke("job " + text(id) + " has no end");
    const bool must_be_stored = job.was_promised && job.facts.holder != Holder::Connection;
    const bool is_stored =
        !job.records.empty() && std::holds_alternative<EndedRecord>(job.records.back());
    if (must_be_stored && !is_stored) broke("job " + text(id) + " has no end in the store");
  }
  const Fleet& fleet = *fleet_;
  if (fleet.queue.size() != 0) broke("the queue holds jobs that are no more");
  for (const Worker& worker : fleet.workers) {
    if (!worker.running.empty()) broke("a slot was not given back");
  }
  for (const Key& key : fleet.keys) {
    if (key.usage.tokens_reserved != 0 || key.jobs != 0)
      broke("a key's tokens were not given back");
  }
  if (fleet.body_bytes != 0) broke("bytes of bodies were not given back");
}

SimResult simulate(SimOptions options) {
  SimResult result = Simulator(options).run();
  if (result.broken.empty()) return result;
  // The shortest run that still breaks: halve while that helps, then one by one.
  SimOptions shorter = options;
  for (std::uint32_t step = options.jobs / 2; step > 0;) {
    SimOptions tried = shorter;
    tried.jobs -= std::min(step, tried.jobs - 1);
    const SimResult now = tried.jobs < shorter.jobs ? Simulator(tried).run() : SimResult{};
    if (now.broken.empty()) {
      step /= 2;
      continue;
    }
    shorter = tried;
    result = now;
  }
  result.broken +=
      " (seed " + std::to_string(shorter.seed) + ", jobs " + std::to_string(shorter.jobs) + ")";
  return result;
}

}  // namespace llorch::fleet
