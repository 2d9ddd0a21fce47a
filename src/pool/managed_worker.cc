#include "pool/managed_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/timestamp.h"
#include "pool/record_facts.h"
#include "pool/worker_launch.h"
#include "pool/worker_log.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kShutdownTimeout{5'000};
constexpr milliseconds kTokenSlack{1'000};

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

// What is left of a load if it goes on as it went; nothing while there is too little to go by.
std::optional<std::int64_t> ready_in(const contract::PoolWorker& shown, const WorkerFacts& facts) {
  constexpr double kEnough = 0.05;
  if (shown.load_progress < kEnough || facts.health_at <= facts.since) return std::nullopt;
  const std::chrono::duration<double, std::milli> took = facts.health_at - facts.since;
  return static_cast<std::int64_t>(took.count() * (1 - shown.load_progress) / shown.load_progress);
}

}  // namespace

bool ManagedWorker::is_stopped() const {
  return facts.phase == Phase::Ended && facts.category == contract::ExitCategory::Stopped;
}

std::int64_t ManagedWorker::promised_vram_bytes() const {
  if (!has_process(facts) || !facts.uses_gpu) return 0;
  return std::max<std::int64_t>(0, record.worker.planned.device_bytes() - vram_bytes);
}

std::int64_t ManagedWorker::promised_host_bytes() const {
  if (!has_process(facts)) return 0;
  const contract::MemoryNeed& need = record.worker.planned;
  const std::int64_t planned = facts.uses_gpu ? need.host_bytes : need.device_bytes();
  return std::max<std::int64_t>(0, planned - memory.anonymous_bytes);
}

fs::path ManagedWorker::file(const PoolManagerOptions& options) const {
  return record_file(options.home, record.worker.id);
}

contract::PoolWorker ManagedWorker::show() const {
  contract::PoolWorker shown = describe_worker(record, facts);
  const bool runs = has_process(facts);
  shown.memory_bytes = runs ? memory.resident_bytes : 0;
  shown.memory_peak_bytes = std::max(shown.memory_peak_bytes, memory.peak_bytes);
  shown.vram_bytes = runs ? vram_bytes : 0;
  shown.tokens_per_second = runs ? tokens_per_second : 0;
  shown.promised_bytes = facts.uses_gpu ? promised_vram_bytes() : promised_host_bytes();
  if (facts.phase == Phase::Starting) shown.ready_in_ms = ready_in(shown, facts);
  return shown;
}

void ManagedWorker::save(const PoolManagerOptions& options) const {
  WorkerRecord newest = record;
  newest.worker = show();
  if (const Status written = write_record(file(options), newest); !written.ok()) {
    logger().error(
        "a worker's record cannot be written; a manager that starts again will not know "
        "its newest state",
        {{"worker", record.worker.id}, {"error", written.error().message}});
  }
}

// The keeper is made first and waits: once the record with its identity is on disk it may run. A
// manager that is killed anywhere in between leaves nothing that runs.
Status ManagedWorker::launch(const PoolManagerOptions& options, std::uint64_t start_number,
                             TimePoint now) {
  const fs::path path = file(options);
  record.mark = make_mark();
  record.worker.start = start_of(record.mark);
  record.worker.build.clear();
  record.worker.device_class.clear();
  set_mark(record.launch, record.mark);
  record.worker.started_at = now_rfc3339();
  record.worker.pid = 0;
  std::vector<std::string> environment = {mark_variable(record.mark)};
  if (const char* libraries =
          options.environment ? options.environment("LD_LIBRARY_PATH") : nullptr) {
    environment.push_back(fmt::format("LD_LIBRARY_PATH={}", libraries));
  }
  Result<std::unique_ptr<base::HeldProcess>> held =
      base::HeldProcess::spawn(options.keeper, {"keep", path.string()}, std::move(environment));
  if (!held.ok()) return held.error();
  record.keeper = (*held)->identity();
  note_spawned(facts, now, now + ready_patience(record.model_bytes, options.timing));
  remove_notes(path);
  WorkerRecord written = record;
  written.worker = show();
  if (Status saved = write_record(path, written); !saved.ok()) return saved;
  Result<base::ProcessHandle> released = (*held)->release();
  if (!released.ok()) {
    remove_record(path);
    return released.error();
  }
  keeper = released.take();
  start = start_number;
  launched = now;
  measured = false;
  speed = {};
  memory = {};
  vram_bytes = 0;
  tokens_per_second = 0;
  logger().info("worker starts", {{"worker", record.worker.id},
                                  {"model", record.worker.model},
                                  {"port", record.port},
                                  {"keeper", record.keeper.pid}});
  return ok_status();
}

bool ManagedWorker::look_for_end(const PoolManagerOptions& options) {
  if (!has_process(facts) || facts.end || !keeper.has_ended()) return false;
  const std::vector<int> left = base::processes_with_variable(mark_variable(record.mark));
  for (const int pid : left) {
    const auto identity = base::identify_process(pid);
    if (!identity) continue;
    if (const auto handle = base::ProcessHandle::open(*identity); handle.ok())
      handle->send_signal(SIGKILL);
  }
  if (!left.empty()) return true;
  EndFacts end = find_end(file(options), record);
  end.port_taken = end.has_note && end.code != 0 && !facts.is_ready && !is_port_free(record.port);
  facts.end = std::move(end);
  return false;
}

ProbeJob ManagedWorker::make_probe(ProbeJob::Kind kind, const PoolTiming& timing) const {
  ProbeJob job;
  job.kind = kind;
  job.worker = record.worker.id;
  job.start = start;
  job.port = record.port;
  job.pid = static_cast<int>(record.worker.pid);
  job.gpu = record.worker.gpu;
  job.with_metrics = tokens_per_second > 0;
  job.timeout = timing.health_timeout;
  if (kind == ProbeJob::Kind::Token) job.timeout = timing.token_patience + kTokenSlack;
  if (kind == ProbeJob::Kind::Shutdown) {
    job.timeout = kShutdownTimeout;
    job.drain_time = std::chrono::floor<std::chrono::seconds>(drain_patience(facts, timing));
  }
  return job;
}

void ManagedWorker::become_ready(const PoolManagerOptions& options) {
  contract::PoolWorker& shown = record.worker;
  shown.ready_at = now_rfc3339();
  // Built here: nobody can lead requests to another address.
  shown.uri = fmt::format("http://127.0.0.1:{}", record.port);
  save(options);
  logger().info("worker is ready", {{"worker", shown.id}, {"uri", shown.uri}});
}

void ManagedWorker::finish(const PoolManagerOptions& options, std::uint64_t order, TimePoint now) {
  contract::PoolWorker& shown = record.worker;
  const std::optional<ExitNote> note = read_exit_note(file(options), record.mark);
  shown.ended_at = note && !note->ended_at.empty() ? note->ended_at : now_rfc3339();
  if (is_stopped()) {
    remove_record(file(options));
  } else {
    shown.last_log_lines = own_last_lines(record);
    save(options);
  }
  keeper = {};
  ended_order = order;
  ended_time = now;
  const auto fields = {base::LogField{"worker", shown.id},
                       base::LogField{"category", contract::name(facts.category)},
                       base::LogField{"reason", facts.reason}};
  if (is_stopped()) {
    logger().info("worker has ended", fields);
  } else {
    logger().error("worker has failed", fields);
  }
}

}  // namespace llorch::pool
