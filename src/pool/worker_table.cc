#include "pool/worker_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/utf8.h"
#include "contract/backend_kind.h"
#include "pool/record_facts.h"
#include "pool/worker_log.h"

namespace llorch::pool {
namespace {

// "worker-cpu-3" has 3. The id of a record may say anything: what is no sensible number counts as
// 0.
std::uint16_t number_in(std::string_view id) {
  const std::string_view digits = id.substr(id.rfind('-') + 1);
  std::uint16_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && at == end ? number : 0;
}

namespace fs = std::filesystem;
using contract::ExitCategory;
using std::chrono::milliseconds;

constexpr int kWorkersMax = 256;
constexpr std::size_t kEndedMax = 64;
constexpr milliseconds kLookAgain{20};
constexpr milliseconds kFirstAnswer{1'000};  // of a worker that says it is ready

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

}  // namespace

WorkerTable::WorkerTable(const PoolManagerOptions& options, TableHooks hooks)
    : options_(options), hooks_(std::move(hooks)) {}

ManagedWorker* WorkerTable::find(std::string_view id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

Error WorkerTable::unknown(std::string_view id) const {
  return Error{ErrorCode::NotFound,
               fmt::format("there is no worker {}; `llorch-pool worker list` shows those there are",
                           base::quoted(id))};
}

// --- Starting ------------------------------------------------------------------------------------

Result<std::string> WorkerTable::choose_id(const std::string& backend) const {
  if (closed_) return Error{ErrorCode::Unavailable, "the pool is being stopped"};
  if (std::cmp_greater_equal(running().size(), kWorkersMax)) {
    return Error{ErrorCode::QueueFull,
                 fmt::format("{} workers run already, the most there may be", kWorkersMax)};
  }
  for (std::size_t n = 0;; ++n) {
    std::string id = fmt::format("worker-{}-{}", backend, n);
    const auto found = workers_.find(id);
    if (found == workers_.end() || found->second.is_stopped()) return id;
  }
}

std::set<std::uint16_t> WorkerTable::taken_ports() const {
  std::set<std::uint16_t> ports;
  for (const auto& [id, worker] : workers_) {
    if (has_process(worker.facts)) ports.insert(worker.record.port);
  }
  return ports;
}

Status WorkerTable::prepare_record(ManagedWorker& worker, const std::string& id,
                                   const PreparedStart& start) {
  const Result<std::uint16_t> port =
      find_free_port(std::uint32_t{options_.first_port} + number_in(id), taken_ports());
  if (!port.ok()) return port.error();
  WorkerRecord& record = worker.record;
  record = {};
  record.request = start.request;
  record.port = *port;
  record.model_bytes = start.model.size_bytes;
  record.launch = make_launch(start, options_, {.id = id, .port = *port, .mark = {}});
  contract::PoolWorker& shown = record.worker;
  shown.id = id;
  shown.backend = start.request.backend;
  shown.on_demand = start.request.on_demand;
  shown.model = start.request.model;
  if (contract::needs_gpu(start.request.backend)) shown.gpu = start.request.gpu.value_or(0);
  shown.model_hash = start.model_hash;
  shown.planned = start.plan.need;
  shown.trusted = start.trusted;
  shown.context = start.plan.need.context;
  shown.slots = start.plan.need.slots;
  shown.log_file = record.launch.log_file.string();
  worker.facts.uses_gpu = contract::needs_gpu(start.request.backend);
  base::rotate_log(record.launch.log_file);
  return ok_status();
}

Result<contract::PoolWorker> WorkerTable::spawn(const PreparedStart& start, TimePoint now) {
  const Result<std::string> id = choose_id(start.request.backend);
  if (!id.ok()) return id.error();
  ManagedWorker worker;
  if (Status prepared = prepare_record(worker, *id, start); !prepared.ok()) return prepared.error();
  if (Status launched = worker.launch(options_, ++next_start_, now); !launched.ok())
    return launched.error().in("worker " + *id);
  ManagedWorker& kept = workers_.insert_or_assign(*id, std::move(worker)).first->second;
  return kept.show();
}

void WorkerTable::take_plan(const std::string& id, const Result<PreparedStart>& plan,
                            TimePoint now) {
  ManagedWorker* worker = find(id);
  if (worker == nullptr || worker->facts.phase != Phase::Planning) return;  // was stopped meanwhile
  if (!plan.ok()) {
    note_not_spawned(worker->facts, plan.error().message);
    return;
  }
  Status started = prepare_record(*worker, id, *plan);
  if (started.ok()) started = worker->launch(options_, ++next_start_, now);
  if (!started.ok()) note_not_spawned(worker->facts, started.error().message);
}

void WorkerTable::spawn_again(ManagedWorker& worker, TimePoint now) {
  WorkerRecord& record = worker.record;
  const std::uint16_t before = record.port;
  Result<std::uint16_t> port = find_free_port(std::uint32_t{before} + 1, taken_ports());
  Status started = port.ok() ? ok_status() : Status(port.error());
  if (started.ok()) {
    record.port = *port;
    record.port_tries = worker.facts.port_tries;
    set_port(record.launch, *port);
    logger().warn("a worker's port was taken; it starts on the next",
                  {{"worker", record.worker.id}, {"taken", before}, {"next", *port}});
    started = worker.launch(options_, ++next_start_, now);
  }
  if (!started.ok()) note_not_spawned(worker.facts, started.error().message);
}

// --- Adopting ------------------------------------------------------------------------------------

void WorkerTable::adopt(TimePoint now) {
  remove_stray_notes(options_.home);
  for (const fs::path& file : find_records(options_.home)) adopt_one(file, now);
  advance(now);
}

void WorkerTable::adopt_one(const fs::path& file, TimePoint now) {
  Result<WorkerRecord> record = read_record(file);
  if (record.ok() && record->worker.id != file.stem().string())
    record = Error{ErrorCode::Corrupt, "it is the record of " + base::quoted(record->worker.id)};
  if (!record.ok()) {
    std::error_code ignored;
    fs::rename(file, file.string() + ".bad", ignored);
    logger().error("a worker's record cannot be read and was moved aside",
                   {{"file", file.string()}, {"error", record.error().message}});
    return;
  }
  ManagedWorker worker;
  worker.record = record.take();
  worker.facts = facts_of(worker.record, now, options_.timing);
  worker.start = ++next_start_;
  worker.measured = worker.facts.is_ready;
  contract::PoolWorker& shown = worker.record.worker;
  std::string_view found = "had ended";
  if (worker.facts.phase != Phase::Ended) {
    if (Result<base::ProcessHandle> keeper = base::ProcessHandle::open(worker.record.keeper);
        keeper.ok()) {
      worker.keeper = keeper.take();
      found = "runs";
      if (worker.facts.category != ExitCategory::None) worker.keeper.send_signal(SIGTERM);
    }
  } else {
    worker.ended_order = ++next_ended_;
    worker.ended_time = now;
  }
  logger().info("worker found", {{"worker", shown.id}, {"state", found}});
  shown.reason.clear();
  workers_.insert_or_assign(shown.id, std::move(worker));
}

// --- Orders --------------------------------------------------------------------------------------

Result<contract::PoolWorker> WorkerTable::stop(std::string_view id,
                                               std::optional<std::chrono::seconds> patience,
                                               TimePoint now) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return unknown(id);
  ManagedWorker& worker = found->second;
  const bool had_ended = worker.facts.phase == Phase::Ended;
  ask_stop(worker.facts, patience);
  advance_one(worker, now);
  const contract::PoolWorker shown = worker.show();
  if (had_ended) {
    remove_record(worker.file(options_));
    workers_.erase(found);
  }
  return shown;
}

Result<contract::PoolWorker> WorkerTable::restart(std::string_view id, TimePoint now) {
  if (closed_) return Error{ErrorCode::Unavailable, "the pool is being stopped"};
  ManagedWorker* worker = find(id);
  if (worker == nullptr) return unknown(id);
  ask_restart(worker->facts);
  advance_one(*worker, now);
  return worker->show();
}

// The worker that calls back, if it can prove that it is the one.
Result<ManagedWorker*> WorkerTable::find_caller(const contract::ReadyCallback& callback,
                                                std::string_view mark) {
  ManagedWorker* worker = find(callback.worker_id);
  if (worker == nullptr || !has_process(worker->facts)) {
    return Error{ErrorCode::NotFound,
                 fmt::format("worker {} was not started here", base::quoted(callback.worker_id))};
  }
  if (!base::is_same_secret(mark, worker->record.mark)) {
    logger().warn("a ready callback without the worker's mark was refused",
                  {{"worker", worker->record.worker.id}});
    return Error{ErrorCode::Forbidden,
                 fmt::format("this is not worker {}: its mark is missing or wrong",
                             base::quoted(callback.worker_id))};
  }
  return worker;
}

Result<ProbeJob> WorkerTable::first_question(const contract::ReadyCallback& callback,
                                             std::string_view mark) {
  const Result<ManagedWorker*> worker = find_caller(callback, mark);
  if (!worker.ok()) return worker.error();
  ProbeJob job = (*worker)->make_probe(ProbeJob::Kind::Health, options_.timing);
  job.timeout = std::min(job.timeout, kFirstAnswer);
  return job;
}

Status WorkerTable::ready(const contract::ReadyCallback& callback, std::string_view mark,
                          TimePoint now) {
  const Result<ManagedWorker*> worker = find_caller(callback, mark);
  if (!worker.ok()) return worker.error();
  // A worker whose answer was lost says it again; nothing changes then.
  note_ready((*worker)->facts);
  advance_one(**worker, now);
  return ok_status();
}

void WorkerTable::take(const ProbeResult& result, TimePoint now) {
  ManagedWorker* worker = find(result.job.worker);
  if (worker == nullptr || worker->start != result.job.start) return;  // of a process before
  const bool has_memory = result.job.pid > 0 && has_process(worker->facts);
  if (has_memory && result.memory.resident_bytes > 0) {
    worker->memory = result.memory;
    worker->vram_bytes = result.vram_bytes;
  }
  switch (result.job.kind) {
    case ProbeJob::Kind::Health:
      if (worker->facts.phase >= Phase::Draining) return;
      note_health(worker->facts, result.health, now);
      worker->tokens_per_second = result.tokens_per_second;
      if (result.counters) {
        std::vector<SpeedSample> samples = worker->speed.take(*result.counters);
        if (!samples.empty()) hooks_.keep_speed(worker->show(), std::move(samples), 0);
      }
      break;
    case ProbeJob::Kind::Token:
      note_token_probe(worker->facts, result.token_failed);
      break;
    case ProbeJob::Kind::Memory:
      note_memory(worker->facts, result.vram_bytes == 0, now);
      break;
    case ProbeJob::Kind::Shutdown:
      note_shutdown(worker->facts, result.shutdown_failed);
      break;
  }
  const std::int64_t peak = worker->facts.uses_gpu ? worker->vram_bytes : worker->memory.peak_bytes;
  if (!worker->measured && worker->facts.phase == Phase::Serving && has_memory && peak > 0) {
    worker->measured = true;
    hooks_.keep_measurement(worker->show(), peak);
  }
  advance_one(*worker, now);
}

// --- Living --------------------------------------------------------------------------------------

std::vector<int> WorkerTable::files() const {
  std::vector<int> files;
  for (const auto& [id, worker] : workers_) {
    if (has_process(worker.facts) && worker.keeper.is_open() && !worker.facts.end)
      files.push_back(worker.keeper.fd());
  }
  return files;
}

TimePoint WorkerTable::advance(TimePoint now) {
  TimePoint wake = now + std::chrono::hours(1);
  for (auto& [id, worker] : workers_) wake = std::min(wake, advance_one(worker, now));
  forget_oldest();
  // Those that were stopped leave the list after a while; their logs stay.
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    if (!worker->second.is_stopped()) {
      ++worker;
      continue;
    }
    const TimePoint leaves = worker->second.ended_time + options_.timing.stopped_shown;
    if (leaves > now) {
      wake = std::min(wake, leaves);
      ++worker;
    } else {
      worker = workers_.erase(worker);
    }
  }
  return wake;
}

TimePoint WorkerTable::advance_one(ManagedWorker& worker, TimePoint now) {
  if (worker.record.worker.pid == 0 && has_process(worker.facts)) {
    if (const auto note = read_run_note(worker.file(options_), worker.record.mark))
      worker.record.worker.pid = note->process.pid;
  }
  const bool is_leaving = worker.look_for_end(options_);
  TimePoint wake{};
  for (;;) {
    const Step step = next_step(worker.facts, now, options_.timing);
    wake = step.wake;
    for (const Action action : step.actions) perform(worker, action, now);
    // Only a start that failed at once leaves more to decide.
    if (step.actions.empty() || !worker.facts.end || worker.facts.phase >= Phase::Reclaiming) break;
  }
  const bool is_looking =
      is_leaving || (worker.record.worker.pid == 0 && has_process(worker.facts));
  return is_looking ? std::min(wake, now + kLookAgain) : wake;
}

void WorkerTable::perform(ManagedWorker& worker, Action action, TimePoint now) {
  const std::string& id = worker.record.worker.id;
  switch (action) {
    case Action::Probe:
      return hooks_.probe(worker.make_probe(ProbeJob::Kind::Health, options_.timing));
    case Action::ProbeToken:
      return hooks_.probe(worker.make_probe(ProbeJob::Kind::Token, options_.timing));
    case Action::AskShutdown:
      return hooks_.probe(worker.make_probe(ProbeJob::Kind::Shutdown, options_.timing));
    case Action::CheckMemory:
      return hooks_.probe(worker.make_probe(ProbeJob::Kind::Memory, options_.timing));
    case Action::SendTerm:
      return worker.keeper.send_signal(SIGTERM);
    case Action::OrderKill:
      return worker.keeper.send_signal(kKillOrder);
    case Action::KillKeeper:
      return worker.keeper.send_signal(SIGKILL);
    case Action::SpawnAgain:
      return spawn_again(worker, now);
    case Action::Plan:
      return hooks_.plan(id, worker.record.request);
    case Action::BecameReady:
      worker.become_ready(options_);
      if (!worker.facts.adopted) {
        const std::chrono::duration<double, std::milli> took = now - worker.launched;
        hooks_.keep_speed(worker.show(), {}, took.count());
      }
      return;
    case Action::EndBegan:
      logger().info("worker is ended", {{"worker", id},
                                        {"category", contract::name(worker.facts.category)},
                                        {"reason", worker.facts.reason}});
      return worker.save(options_);
    case Action::Ended:
      return worker.finish(options_, ++next_ended_, now);
  }
}

// A bounded memory of those that have ended.
void WorkerTable::forget_oldest() {
  for (;;) {
    std::size_t num_ended = 0;
    auto oldest = workers_.end();
    for (auto worker = workers_.begin(); worker != workers_.end(); ++worker) {
      if (worker->second.facts.phase != Phase::Ended) continue;
      ++num_ended;
      if (oldest == workers_.end() || worker->second.ended_order < oldest->second.ended_order)
        oldest = worker;
    }
    if (num_ended <= kEndedMax) return;
    remove_record(oldest->second.file(options_));
    workers_.erase(oldest);
  }
}

// --- Asking --------------------------------------------------------------------------------------

PromisedMemory WorkerTable::promised() const {
  PromisedMemory promised;
  for (const auto& [id, worker] : workers_) {
    const std::int64_t vram = worker.promised_vram_bytes();
    if (vram > 0) promised.vram_bytes[worker.record.worker.gpu.value_or(0)] += vram;
    promised.host_bytes += worker.promised_host_bytes();
  }
  return promised;
}

std::vector<contract::PoolWorker> WorkerTable::show() const {
  std::vector<contract::PoolWorker> all;
  for (const auto& [id, worker] : workers_) all.push_back(worker.show());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.started_at < b.started_at;  // of one form, so they sort as text
  });
  return all;
}

Result<contract::PoolWorker> WorkerTable::show(std::string_view id) const {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return unknown(id);
  return found->second.show();
}

bool WorkerTable::uses_model(std::string_view model) const {
  return std::any_of(workers_.begin(), workers_.end(), [model](const auto& entry) {
    return entry.second.facts.phase != Phase::Ended && entry.second.record.request.model == model;
  });
}

std::vector<std::string> WorkerTable::running() const {
  std::vector<std::string> ids;
  for (const auto& [id, worker] : workers_) {
    if (worker.facts.phase != Phase::Ended) ids.push_back(id);
  }
  return ids;
}

}  // namespace llorch::pool
