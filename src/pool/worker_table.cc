#include "pool/worker_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "base/process.h"
#include "base/timestamp.h"
#include "base/utf8.h"
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
constexpr std::size_t kLogLines = 20;
constexpr milliseconds kLookAgain{20};
constexpr milliseconds kShutdownTimeout{5'000};
constexpr milliseconds kTokenSlack{1'000};

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

milliseconds ready_patience(std::int64_t model_bytes, const PoolTiming& timing) {
  const double seconds = static_cast<double>(model_bytes) / timing.ready_bytes_per_second;
  return timing.ready_base + milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// The part of the deadline that is left, after the time that passed before we came.
TimePoint remaining_deadline(const WorkerRecord& record, TimePoint now, const PoolTiming& timing) {
  const auto started = base::parse_rfc3339(record.worker.started_at);
  const auto elapsed = started ? std::chrono::system_clock::now() - *started
                               : std::chrono::system_clock::duration::zero();
  return now + ready_patience(record.model_bytes, timing) -
         std::chrono::duration_cast<milliseconds>(std::max(elapsed, elapsed.zero()));
}

// The end of the worker's log, without what an earlier worker of the same id left.
std::vector<std::string> own_last_lines(const WorkerRecord& record) {
  const auto started = base::parse_rfc3339(record.worker.started_at);
  return read_last_lines(record.launch.log_file, kLogLines,
                         started.value_or(std::chrono::system_clock::time_point{}));
}

// The last line of the log that the worker wrote itself.
std::string last_own_line(const WorkerRecord& record) {
  const std::vector<std::string> lines = own_last_lines(record);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!line->starts_with(kKeeperPrefix)) return *line;
  }
  return {};
}

bool is_stopped(const WorkerFacts& facts) {
  return facts.phase == Phase::Ended && facts.category == ExitCategory::Stopped;
}

}  // namespace

WorkerFacts facts_of(const WorkerRecord& record, TimePoint now, const PoolTiming& timing) {
  WorkerFacts facts;
  facts.since = now;
  facts.adopted = true;
  facts.uses_gpu = record.request.backend == "cuda";
  facts.port_tries = record.port_tries;
  facts.next_probe = now;
  facts.last_work = now;
  facts.ready_deadline = remaining_deadline(record, now, timing);
  facts.is_ready = !record.worker.ready_at.empty();
  facts.phase = facts.is_ready ? Phase::Serving : Phase::Starting;
  if (!record.worker.ended_at.empty()) facts.phase = Phase::Ended;
  if (record.worker.category == ExitCategory::Stopped && record.worker.ended_at.empty()) {
    facts.stop_asked = true;
  } else if (record.worker.category != ExitCategory::None) {
    facts.category = record.worker.category;
    facts.reason = record.worker.reason;
    if (facts.phase != Phase::Ended) facts.phase = Phase::Terminating;
  }
  return facts;
}

EndFacts find_end(const fs::path& file, const WorkerRecord& record) {
  EndFacts end;
  end.rebooted = record.keeper.boot_id != base::current_boot_id();
  if (const std::optional<ExitNote> note = read_exit_note(file, record.mark)) {
    end.has_note = true;
    end.rebooted = false;
    end.code = note->code;
    end.signal = note->signal;
    end.oom_kill = note->oom_kill;
    end.ordered = note->ordered;
    end.told = note->told;
    end.orphaned = note->orphaned;
    end.start_error = note->start_error;
  } else {
    end.never_ran = record.worker.ready_at.empty() && !read_run_note(file, record.mark).has_value();
  }
  end.last_line = last_own_line(record);
  return end;
}

contract::PoolWorker show_worker(const WorkerRecord& record, const WorkerFacts& facts) {
  contract::PoolWorker shown = record.worker;
  shown.state = shown_state(facts);
  shown.category = facts.category;
  shown.reason = facts.reason;
  if (facts.phase == Phase::Planning) shown.reason = "waits for its memory plan";
  if (facts.phase == Phase::Ended && facts.end && facts.end->has_note &&
      facts.end->start_error.empty()) {
    if (facts.end->signal != 0) {
      shown.exit_signal = facts.end->signal;
    } else {
      shown.exit_code = facts.end->code;
    }
  }
  if (facts.health) {
    const contract::HealthReport& report = facts.health->report;
    shown.load_progress = report.load_progress.value_or(shown.load_progress);
    shown.slots_busy = static_cast<std::int32_t>(report.slots_busy);
    shown.queue_depth = report.queue_depth;
    shown.last_token_age_ms = report.last_token_age_ms;
  }
  if (facts.is_ready) shown.load_progress = 1;
  return shown;
}

WorkerTable::WorkerTable(const PoolManagerOptions& options, TableHooks hooks)
    : options_(options), hooks_(std::move(hooks)) {}

WorkerTable::Worker* WorkerTable::find(std::string_view id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

fs::path WorkerTable::file_of(const Worker& worker) const {
  return record_file(options_.home, worker.record.worker.id);
}

Error WorkerTable::unknown(std::string_view id) const {
  return Error{ErrorCode::NotFound,
               fmt::format("there is no worker {}; `llorch-pool worker list` shows those there are",
                           base::quoted(id))};
}

void WorkerTable::save(const Worker& worker) const {
  WorkerRecord record = worker.record;
  record.worker = show_one(worker);
  if (const Status written = write_record(file_of(worker), record); !written.ok()) {
    logger().error(
        "a worker's record cannot be written; a manager that starts again will not know "
        "its newest state",
        {{"worker", record.worker.id}, {"error", written.error().message}});
  }
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
    if (found == workers_.end() || is_stopped(found->second.facts)) return id;
  }
}

std::set<std::uint16_t> WorkerTable::taken_ports() const {
  std::set<std::uint16_t> ports;
  for (const auto& [id, worker] : workers_) {
    if (has_process(worker.facts)) ports.insert(worker.record.port);
  }
  return ports;
}

Status WorkerTable::prepare_record(Worker& worker, const std::string& id,
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
  shown.model = start.request.model;
  if (start.request.backend == "cuda") shown.gpu = start.request.gpu.value_or(0);
  shown.planned = start.plan.need;
  shown.trusted = start.trusted;
  shown.context = start.plan.need.context;
  shown.slots = start.plan.need.slots;
  shown.log_file = record.launch.log_file.string();
  worker.facts.uses_gpu = start.request.backend == "cuda";
  rotate_log(record.launch.log_file);
  return ok_status();
}

// The keeper is made first and waits: once the record with its identity is on disk it may run. A
// manager that is killed anywhere in between leaves nothing that runs.
Status WorkerTable::launch(Worker& worker, TimePoint now) {
  WorkerRecord& record = worker.record;
  const fs::path file = file_of(worker);
  record.mark = make_mark();
  set_mark(record.launch, record.mark);
  record.worker.started_at = now_rfc3339();
  record.worker.pid = 0;
  std::vector<std::string> environment = {mark_variable(record.mark)};
  if (const char* libraries =
          options_.environment ? options_.environment("LD_LIBRARY_PATH") : nullptr) {
    environment.push_back(fmt::format("LD_LIBRARY_PATH={}", libraries));
  }
  Result<std::unique_ptr<base::HeldProcess>> held =
      base::HeldProcess::spawn(options_.keeper, {"keep", file.string()}, std::move(environment));
  if (!held.ok()) return held.error();
  record.keeper = (*held)->identity();
  note_spawned(worker.facts, now, now + ready_patience(record.model_bytes, options_.timing));
  remove_notes(file);
  WorkerRecord written = record;
  written.worker = show_one(worker);
  if (Status saved = write_record(file, written); !saved.ok()) return saved;
  Result<base::ProcessHandle> keeper = (*held)->release();
  if (!keeper.ok()) {
    remove_record(file);
    return keeper.error();
  }
  worker.keeper = keeper.take();
  worker.start = ++next_start_;
  worker.measured = false;
  worker.memory = {};
  worker.vram_bytes = 0;
  worker.tokens_per_second = 0;
  logger().info("worker starts", {{"worker", record.worker.id},
                                  {"model", record.worker.model},
                                  {"port", record.port},
                                  {"keeper", record.keeper.pid}});
  return ok_status();
}

Result<contract::PoolWorker> WorkerTable::spawn(const PreparedStart& start, TimePoint now) {
  const Result<std::string> id = choose_id(start.request.backend);
  if (!id.ok()) return id.error();
  Worker worker;
  if (Status prepared = prepare_record(worker, *id, start); !prepared.ok()) return prepared.error();
  if (Status launched = launch(worker, now); !launched.ok())
    return launched.error().in("worker " + *id);
  Worker& kept = workers_.insert_or_assign(*id, std::move(worker)).first->second;
  return show_one(kept);
}

void WorkerTable::take_plan(const std::string& id, const Result<PreparedStart>& plan,
                            TimePoint now) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->facts.phase != Phase::Planning) return;  // was stopped meanwhile
  if (!plan.ok()) {
    note_not_spawned(worker->facts, plan.error().message);
    return;
  }
  Status started = prepare_record(*worker, id, *plan);
  if (started.ok()) started = launch(*worker, now);
  if (!started.ok()) note_not_spawned(worker->facts, started.error().message);
}

void WorkerTable::spawn_again(Worker& worker, TimePoint now) {
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
    started = launch(worker, now);
  }
  if (!started.ok()) note_not_spawned(worker.facts, started.error().message);
}

// --- Adopting ------------------------------------------------------------------------------------

void WorkerTable::adopt(TimePoint now) {
  remove_leftovers(options_.home);
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
  Worker worker;
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
  Worker& worker = found->second;
  const bool had_ended = worker.facts.phase == Phase::Ended;
  ask_stop(worker.facts, patience);
  advance_one(worker, now);
  const contract::PoolWorker shown = show_one(worker);
  if (had_ended) {
    remove_record(file_of(worker));
    workers_.erase(found);
  }
  return shown;
}

Result<contract::PoolWorker> WorkerTable::restart(std::string_view id, TimePoint now) {
  if (closed_) return Error{ErrorCode::Unavailable, "the pool is being stopped"};
  Worker* worker = find(id);
  if (worker == nullptr) return unknown(id);
  ask_restart(worker->facts);
  advance_one(*worker, now);
  return show_one(*worker);
}

Status WorkerTable::ready(const contract::ReadyCallback& callback, std::string_view mark,
                          TimePoint now) {
  Worker* worker = find(callback.worker_id);
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
  // A worker whose answer was lost says it again; nothing changes then.
  note_ready(worker->facts);
  advance_one(*worker, now);
  return ok_status();
}

void WorkerTable::take(const ProbeResult& result, TimePoint now) {
  Worker* worker = find(result.job.worker);
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
    hooks_.keep_measurement(show_one(*worker), peak);
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
    if (!is_stopped(worker->second.facts)) {
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

TimePoint WorkerTable::advance_one(Worker& worker, TimePoint now) {
  if (worker.record.worker.pid == 0 && has_process(worker.facts)) {
    if (const auto note = read_run_note(file_of(worker), worker.record.mark))
      worker.record.worker.pid = note->process.pid;
  }
  const bool is_leaving = look_for_end(worker);
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

// Notes the end once no process of the worker is left, whatever it started. True while some are.
bool WorkerTable::look_for_end(Worker& worker) {
  if (!has_process(worker.facts) || worker.facts.end || !worker.keeper.has_ended()) return false;
  const std::vector<int> left = base::processes_with_variable(mark_variable(worker.record.mark));
  for (const int pid : left) {
    const auto identity = base::identify_process(pid);
    if (!identity) continue;
    if (const auto handle = base::ProcessHandle::open(*identity); handle.ok())
      handle->send_signal(SIGKILL);
  }
  if (!left.empty()) return true;
  EndFacts end = find_end(file_of(worker), worker.record);
  end.port_taken =
      end.has_note && end.code != 0 && !worker.facts.is_ready && !is_port_free(worker.record.port);
  worker.facts.end = std::move(end);
  return false;
}

void WorkerTable::perform(Worker& worker, Action action, TimePoint now) {
  const std::string& id = worker.record.worker.id;
  switch (action) {
    case Action::Probe:
      return submit(worker, ProbeJob::Kind::Health);
    case Action::ProbeToken:
      return submit(worker, ProbeJob::Kind::Token);
    case Action::AskShutdown:
      return submit(worker, ProbeJob::Kind::Shutdown);
    case Action::CheckMemory:
      return submit(worker, ProbeJob::Kind::Memory);
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
      return become_ready(worker);
    case Action::EndBegan:
      logger().info("worker is ended", {{"worker", id},
                                        {"category", contract::name(worker.facts.category)},
                                        {"reason", worker.facts.reason}});
      return save(worker);
    case Action::Ended:
      return finish(worker, now);
  }
}

void WorkerTable::submit(Worker& worker, ProbeJob::Kind kind) {
  ProbeJob job;
  job.kind = kind;
  job.worker = worker.record.worker.id;
  job.start = worker.start;
  job.port = worker.record.port;
  job.pid = static_cast<int>(worker.record.worker.pid);
  job.gpu = worker.record.worker.gpu;
  job.with_metrics = worker.tokens_per_second > 0;
  job.timeout = options_.timing.health_timeout;
  if (kind == ProbeJob::Kind::Token) job.timeout = options_.timing.token_patience + kTokenSlack;
  if (kind == ProbeJob::Kind::Shutdown) {
    job.timeout = kShutdownTimeout;
    job.drain_time =
        std::chrono::floor<std::chrono::seconds>(drain_patience(worker.facts, options_.timing));
  }
  hooks_.probe(std::move(job));
}

void WorkerTable::become_ready(Worker& worker) {
  contract::PoolWorker& shown = worker.record.worker;
  shown.ready_at = now_rfc3339();
  // Built here: nobody can lead requests to another address.
  shown.uri = fmt::format("http://127.0.0.1:{}", worker.record.port);
  save(worker);
  logger().info("worker is ready", {{"worker", shown.id}, {"uri", shown.uri}});
}

void WorkerTable::finish(Worker& worker, TimePoint now) {
  contract::PoolWorker& shown = worker.record.worker;
  const std::optional<ExitNote> note = read_exit_note(file_of(worker), worker.record.mark);
  shown.ended_at = note && !note->ended_at.empty() ? note->ended_at : now_rfc3339();
  if (is_stopped(worker.facts)) {
    remove_record(file_of(worker));
  } else {
    shown.last_log_lines = own_last_lines(worker.record);
    save(worker);
  }
  worker.keeper = {};
  worker.ended_order = ++next_ended_;
  worker.ended_time = now;
  const auto fields = {base::LogField{"worker", shown.id},
                       base::LogField{"category", contract::name(worker.facts.category)},
                       base::LogField{"reason", worker.facts.reason}};
  if (is_stopped(worker.facts)) {
    logger().info("worker has ended", fields);
  } else {
    logger().error("worker has failed", fields);
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
    remove_record(file_of(oldest->second));
    workers_.erase(oldest);
  }
}

// --- Asking --------------------------------------------------------------------------------------

PromisedMemory WorkerTable::promised() const {
  PromisedMemory promised;
  const auto rest = [](std::int64_t planned, std::int64_t taken) {
    return std::max<std::int64_t>(0, planned - taken);
  };
  for (const auto& [id, worker] : workers_) {
    if (!has_process(worker.facts)) continue;
    const contract::MemoryNeed& need = worker.record.worker.planned;
    if (worker.facts.uses_gpu) {
      const std::int64_t vram = rest(need.device_bytes(), worker.vram_bytes);
      if (vram > 0) promised.vram_bytes[worker.record.worker.gpu.value_or(0)] += vram;
    }
    promised.host_bytes += rest(worker.facts.uses_gpu ? need.host_bytes : need.device_bytes(),
                                worker.memory.anonymous_bytes);
  }
  return promised;
}

contract::PoolWorker WorkerTable::show_one(const Worker& worker) {
  contract::PoolWorker shown = show_worker(worker.record, worker.facts);
  const bool runs = has_process(worker.facts);
  shown.memory_bytes = runs ? worker.memory.resident_bytes : 0;
  shown.memory_peak_bytes = std::max(shown.memory_peak_bytes, worker.memory.peak_bytes);
  shown.vram_bytes = runs ? worker.vram_bytes : 0;
  shown.tokens_per_second = runs ? worker.tokens_per_second : 0;
  return shown;
}

std::vector<contract::PoolWorker> WorkerTable::show() const {
  std::vector<contract::PoolWorker> all;
  for (const auto& [id, worker] : workers_) all.push_back(show_one(worker));
  return all;
}

Result<contract::PoolWorker> WorkerTable::show(std::string_view id) const {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return unknown(id);
  return show_one(found->second);
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
