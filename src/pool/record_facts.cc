#include "pool/record_facts.h"

#include <algorithm>
#include <optional>

#include "base/process_table.h"
#include "base/timestamp.h"
#include "contract/backend_kind.h"
#include "contract/pool_state.h"
#include "pool/worker_log.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;
using contract::ExitCategory;
using std::chrono::milliseconds;

constexpr std::size_t kLogLines = 20;

// The part of the deadline that is left, after the time that passed before we came.
TimePoint remaining_deadline(const WorkerRecord& record, TimePoint now, const PoolTiming& timing) {
  const auto started = base::parse_rfc3339(record.worker.started_at);
  const auto elapsed = started ? std::chrono::system_clock::now() - *started
                               : std::chrono::system_clock::duration::zero();
  return now + ready_patience(record.model_bytes, timing) -
         std::chrono::duration_cast<milliseconds>(std::max(elapsed, elapsed.zero()));
}

// The last line of the log that the worker wrote itself.
std::string last_own_line(const WorkerRecord& record) {
  const std::vector<std::string> lines = own_last_lines(record);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!line->starts_with(kKeeperPrefix)) return *line;
  }
  return {};
}

}  // namespace

std::chrono::milliseconds ready_patience(std::int64_t model_bytes, const PoolTiming& timing) {
  const double seconds = static_cast<double>(model_bytes) / timing.ready_bytes_per_second;
  return timing.ready_base + milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::vector<std::string> own_last_lines(const WorkerRecord& record) {
  const auto started = base::parse_rfc3339(record.worker.started_at);
  return read_last_lines(record.launch.log_file, kLogLines,
                         started.value_or(std::chrono::system_clock::time_point{}));
}

WorkerFacts facts_of(const WorkerRecord& record, TimePoint now, const PoolTiming& timing) {
  WorkerFacts facts;
  facts.since = now;
  facts.adopted = true;
  facts.uses_gpu = contract::needs_gpu(record.request.backend);
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

contract::PoolWorker describe_worker(const WorkerRecord& record, const WorkerFacts& facts) {
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
    shown.kv_blocks_total = report.kv_blocks_total;
    shown.kv_blocks_free = report.kv_blocks_free;
    if (!report.build.empty()) shown.build = report.build;
    if (!report.device_class.empty()) shown.device_class = report.device_class;
  }
  if (facts.is_ready) shown.load_progress = 1;
  shown.device = contract::device_number(shown.backend, shown.gpu.value_or(0));
  shown.can_resume = !shown.build.empty();                    // those that say it know how
  if (shown.start == 0) shown.start = start_of(record.mark);  // of an older manager's record
  return shown;
}

}  // namespace llorch::pool
