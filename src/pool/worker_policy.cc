#include "pool/worker_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "base/json.h"
#include "base/process.h"

namespace llorch::pool {
namespace {

using contract::ExitCategory;
using std::chrono::milliseconds;

constexpr std::chrono::hours kNothingToDo{1};
constexpr milliseconds kMemoryLook{100};

constexpr std::array<std::string_view, 8> kPhases = {
    "planning", "starting", "serving", "draining", "terminating", "killing", "reclaiming", "ended"};
constexpr std::array<std::string_view, 12> kActions = {
    "probe",       "probe_token",  "ask_shutdown", "send_term",    "order_kill", "kill_keeper",
    "spawn_again", "check_memory", "plan",         "became_ready", "end_began",  "ended"};

struct Verdict {
  ExitCategory category;
  std::string reason;
};

// A line of the worker's own log that tells of its work, not of its end.
bool is_routine(std::string_view line) {
  const Result<json::Value> parsed = json::parse(line);
  const json::Object* object = parsed.ok() ? parsed->if_object() : nullptr;
  const json::Value* level = object != nullptr ? object->if_contains("level") : nullptr;
  return level != nullptr && (*level == json::Value("info") || *level == json::Value("debug"));
}

std::string with_last_line(std::string text, const EndFacts& end) {
  if (end.last_line.empty() || is_routine(end.last_line)) return text;
  return text + ": " + end.last_line;
}

// Why it ended when nobody here had decided that it should.
Verdict judge_end(const EndFacts& end, bool was_ready, bool adopted) {
  if (end.rebooted) return {ExitCategory::Stopped, "the machine was restarted"};
  if (!end.start_error.empty()) return {ExitCategory::StartFailed, end.start_error};
  if (end.never_ran && adopted) {
    return {ExitCategory::Stopped,
            "the pool manager was ended while it started this worker; nothing had run yet"};
  }
  if (end.never_ran)
    return {ExitCategory::StartFailed, "its keeper was killed before it started the worker"};
  if (!end.has_note) {
    return {ExitCategory::Crash,
            with_last_line("its keeper was killed, and the worker with it", end)};
  }
  if (end.orphaned)
    return {ExitCategory::Stopped, "there was no pool manager, so its keeper ended it"};
  if (end.told) return {ExitCategory::Stopped, "its keeper was told to end it (SIGTERM)"};
  const std::string how = base::ExitStatus{end.code, end.signal}.describe();
  if (end.signal == SIGKILL && end.oom_kill && !end.ordered) {
    return {ExitCategory::OomKill,
            "the kernel killed it to get memory back; start it with a smaller context or fewer "
            "slots, or stop something else"};
  }
  if (!was_ready)
    return {ExitCategory::StartFailed, with_last_line(how + " before it was ready", end)};
  if (end.code == 0 && end.signal == 0)
    return {ExitCategory::Stopped, "ended by itself: something else asked it to"};
  return {ExitCategory::Crash, with_last_line(how, end)};
}

void enter(WorkerFacts& facts, Phase phase, TimePoint now) {
  facts.phase = phase;
  facts.since = now;
}

void begin_end(WorkerFacts& facts, ExitCategory category, std::string reason,
               std::vector<Action>& actions) {
  facts.category = category;
  facts.reason = std::move(reason);
  actions.push_back(Action::EndBegan);
}

double seconds(milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The reason to kill a worker that serves; empty when it lives.
std::string find_hang(const WorkerFacts& facts, const PoolTiming& timing) {
  if (facts.failures >= timing.health_failures) {
    return fmt::format("answered no health check {} times in a row: {}", facts.failures,
                       facts.last_failure);
  }
  if (facts.unhealthy >= timing.health_failures)
    return "says that it is unhealthy: " + facts.health->report.reason;
  if (facts.token_failed) {
    return fmt::format("made no token within {:g} s when it was asked for one",
                       seconds(timing.token_patience));
  }
  if (facts.proof_of_life && facts.health_at - *facts.proof_of_life > timing.token_patience)
    return fmt::format("has work and made no token for {:g} s", seconds(timing.token_patience));
  return {};
}

void probe(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
           std::vector<Action>& actions) {
  if (!facts.probing && now >= facts.next_probe) {
    facts.probing = true;
    facts.next_probe = now + timing.health_interval;
    actions.push_back(Action::Probe);
  }
  const bool is_idle =
      facts.phase == Phase::Serving && facts.health && !facts.proof_of_life.has_value();
  if (is_idle && !facts.probing_token && timing.idle_probe.count() > 0 &&
      now >= facts.last_work + timing.idle_probe) {
    facts.probing_token = true;
    facts.last_work = now;
    actions.push_back(Action::ProbeToken);
  }
}

void finish(WorkerFacts& facts, TimePoint now, std::vector<Action>& actions) {
  enter(facts, Phase::Ended, now);
  facts.stop_asked = false;
  if (!facts.restart_asked) actions.push_back(Action::Ended);
}

// Its processes are gone: true when the phase changed.
bool take_end(WorkerFacts& facts, TimePoint now, std::vector<Action>& actions) {
  const EndFacts& end = *facts.end;
  if (facts.phase == Phase::Starting && end.port_taken && !facts.stop_asked &&
      facts.category == ExitCategory::None && facts.port_tries < kPortTriesMax) {
    ++facts.port_tries;
    facts.end.reset();
    enter(facts, Phase::Planning, now);
    actions.push_back(Action::SpawnAgain);
    return true;
  }
  if (facts.category == ExitCategory::None && facts.stop_asked) {
    facts.category = ExitCategory::Stopped;
    facts.reason = "was asked to stop";
  } else if (facts.category == ExitCategory::None) {
    Verdict verdict = judge_end(end, facts.is_ready, facts.adopted);
    facts.category = verdict.category;
    facts.reason = std::move(verdict.reason);
  } else if (end.ordered && facts.category == ExitCategory::Stopped) {
    facts.reason += ", did not end by itself and was killed";
  }
  const bool had_process = facts.phase != Phase::Planning;
  if (facts.uses_gpu && had_process) {
    enter(facts, Phase::Reclaiming, now);
    facts.probing = false;
    facts.next_probe = now;
  } else {
    finish(facts, now, actions);
  }
  return true;
}

bool advance_starting(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
                      std::vector<Action>& actions) {
  if (facts.is_ready) {
    enter(facts, Phase::Serving, now);
    facts.failures = 0;  // it may be silent while it loads
    facts.unhealthy = 0;
    facts.last_work = now;
    actions.push_back(Action::BecameReady);
    return true;
  }
  if (now >= facts.ready_deadline) {
    begin_end(facts, ExitCategory::Timeout, "was not ready within its deadline", actions);
    enter(facts, Phase::Terminating, now);
    actions.push_back(Action::SendTerm);
    return true;
  }
  probe(facts, now, timing, actions);
  return false;
}

bool advance_serving(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
                     std::vector<Action>& actions) {
  if (std::string reason = find_hang(facts, timing); !reason.empty()) {
    begin_end(facts, ExitCategory::Hang, std::move(reason), actions);
    enter(facts, Phase::Killing, now);
    actions.push_back(Action::OrderKill);
    return true;
  }
  probe(facts, now, timing, actions);
  return false;
}

// The worker itself ends what it runs when its patience is over, so that every answer hears of it;
// only one that does not is sent a signal.
TimePoint drain_end(const WorkerFacts& facts, const PoolTiming& timing) {
  return facts.since + drain_patience(facts, timing) + timing.drain_grace;
}

// From one way of ending it to the next, harder one.
bool advance_ending(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
                    std::vector<Action>& actions) {
  if (facts.phase == Phase::Draining && std::exchange(facts.drain_asked_anew, false)) {
    facts.since = now;
    actions.push_back(Action::AskShutdown);
  }
  if (facts.phase == Phase::Draining &&
      (facts.shutdown_failed || now >= drain_end(facts, timing))) {
    enter(facts, Phase::Terminating, now);
    actions.push_back(Action::SendTerm);
    return true;
  }
  if (facts.phase == Phase::Terminating && now >= facts.since + timing.term_patience) {
    enter(facts, Phase::Killing, now);
    actions.push_back(Action::OrderKill);
    return true;
  }
  if (facts.phase == Phase::Killing && !facts.keeper_killed &&
      now >= facts.since + timing.kill_patience) {
    facts.keeper_killed = true;
    actions.push_back(Action::KillKeeper);
  }
  return false;
}

bool advance_reclaiming(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
                        std::vector<Action>& actions) {
  if (!facts.memory_back && now < facts.since + timing.reclaim_patience) {
    if (!facts.probing && now >= facts.next_probe) {
      facts.probing = true;
      facts.next_probe = now + kMemoryLook;
      actions.push_back(Action::CheckMemory);
    }
    return false;
  }
  if (!facts.memory_back) {
    facts.reason += fmt::format("; the GPU's memory was not seen back within {:g} s",
                                seconds(timing.reclaim_patience));
  }
  finish(facts, now, actions);
  return true;
}

// One transition; false when the phase stays.
bool advance(WorkerFacts& facts, TimePoint now, const PoolTiming& timing,
             std::vector<Action>& actions) {
  if (facts.end && facts.phase < Phase::Reclaiming) return take_end(facts, now, actions);
  switch (facts.phase) {
    case Phase::Planning:
      if (!facts.stop_asked) return false;
      facts.category = ExitCategory::Stopped;
      facts.reason = "was asked to stop";
      finish(facts, now, actions);
      return true;
    case Phase::Starting:
    case Phase::Serving:
      if (facts.stop_asked) {
        begin_end(facts, ExitCategory::Stopped, "was asked to stop", actions);
        enter(facts, Phase::Draining, now);
        actions.push_back(Action::AskShutdown);
        return true;
      }
      return facts.phase == Phase::Starting ? advance_starting(facts, now, timing, actions)
                                            : advance_serving(facts, now, timing, actions);
    case Phase::Draining:
    case Phase::Terminating:
    case Phase::Killing:
      return advance_ending(facts, now, timing, actions);
    case Phase::Reclaiming:
      return advance_reclaiming(facts, now, timing, actions);
    case Phase::Ended:
      if (!facts.restart_asked) return false;
      facts = WorkerFacts{.phase = Phase::Planning, .since = now, .uses_gpu = facts.uses_gpu};
      actions.push_back(Action::Plan);
      return true;
  }
  return false;
}

TimePoint find_wake(const WorkerFacts& facts, TimePoint now, const PoolTiming& timing) {
  TimePoint wake = now + kNothingToDo;
  const auto at = [&wake](TimePoint time) { wake = std::min(wake, time); };
  switch (facts.phase) {
    case Phase::Planning:
    case Phase::Ended:
      break;
    case Phase::Starting:
      at(facts.ready_deadline);
      if (!facts.probing) at(facts.next_probe);
      break;
    case Phase::Serving:
      if (!facts.probing) at(facts.next_probe);
      break;
    case Phase::Draining:
      at(drain_end(facts, timing));
      break;
    case Phase::Terminating:
      at(facts.since + timing.term_patience);
      break;
    case Phase::Killing:
      if (!facts.keeper_killed) at(facts.since + timing.kill_patience);
      break;
    case Phase::Reclaiming:
      at(facts.since + timing.reclaim_patience);
      if (!facts.probing) at(facts.next_probe);
      break;
  }
  return wake;
}

// Errors that are no sign against a worker: we lack descriptors or memory ourselves, or it has so
// many connections that it could not take one more, and said so.
bool says_nothing(const Error& error) {
  return error.code == ErrorCode::OutOfMemory || error.code == ErrorCode::QueueFull;
}

}  // namespace

std::string_view name(Phase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

std::string_view name(Action action) {
  return kActions[static_cast<std::size_t>(action)];
}

void note_spawned(WorkerFacts& facts, TimePoint now, TimePoint ready_deadline) {
  facts = WorkerFacts{.phase = Phase::Starting,
                      .since = now,
                      .ready_deadline = ready_deadline,
                      .uses_gpu = facts.uses_gpu,
                      .port_tries = facts.port_tries,
                      .next_probe = now,
                      .last_work = now};
}

void note_not_spawned(WorkerFacts& facts, std::string why) {
  facts.end = EndFacts{.has_note = true, .start_error = std::move(why)};
}

void note_ready(WorkerFacts& facts) {
  if (facts.phase == Phase::Starting) facts.is_ready = true;
}

void note_health(WorkerFacts& facts, const Result<HealthAnswer>& answer, TimePoint now) {
  facts.probing = false;
  if (!answer.ok()) {
    if (says_nothing(answer.error())) return;
    ++facts.failures;
    facts.last_failure = answer.error().message;
    return;
  }
  const contract::HealthReport& report = answer->report;
  const bool has_work = report.slots_busy + report.queue_depth > 0;
  if (has_work) {
    TimePoint proof = facts.proof_of_life.value_or(now);
    if (report.last_token_age_ms)
      proof = std::max(proof, now - milliseconds(*report.last_token_age_ms));
    if (answer->steps && facts.health && facts.health->steps != answer->steps) proof = now;
    facts.proof_of_life = proof;
    facts.last_work = now;
  } else {
    facts.proof_of_life.reset();
  }
  facts.failures = 0;
  facts.unhealthy = report.status == contract::WorkerStatus::Unhealthy ? facts.unhealthy + 1 : 0;
  facts.health = *answer;
  facts.health_at = now;
  if (facts.adopted && facts.phase == Phase::Starting &&
      report.status == contract::WorkerStatus::Healthy) {
    facts.is_ready = true;
  }
}

void note_token_probe(WorkerFacts& facts, bool failed) {
  facts.probing_token = false;
  facts.token_failed = failed;
}

void note_shutdown(WorkerFacts& facts, bool failed) {
  facts.shutdown_failed = failed;
}

void note_memory(WorkerFacts& facts, bool is_back, TimePoint now) {
  facts.probing = false;
  facts.memory_back = is_back;
  facts.next_probe = std::max(facts.next_probe, now);
}

void ask_stop(WorkerFacts& facts, std::optional<std::chrono::milliseconds> patience) {
  facts.restart_asked = false;
  if (facts.phase == Phase::Ended) return;
  facts.stop_asked = true;
  if (!patience) return;
  facts.drain_patience = patience;
  facts.drain_asked_anew = facts.phase == Phase::Draining;
}

std::chrono::milliseconds drain_patience(const WorkerFacts& facts, const PoolTiming& timing) {
  return facts.drain_patience.value_or(timing.drain_patience);
}

void ask_restart(WorkerFacts& facts) {
  facts.restart_asked = true;
  if (facts.phase != Phase::Ended && facts.phase != Phase::Planning) facts.stop_asked = true;
}

Step next_step(WorkerFacts& facts, TimePoint now, const PoolTiming& timing) {
  Step step;
  while (advance(facts, now, timing, step.actions)) {
  }
  step.wake = find_wake(facts, now, timing);
  return step;
}

contract::PoolWorkerState shown_state(const WorkerFacts& facts) {
  using contract::PoolWorkerState;
  switch (facts.phase) {
    case Phase::Planning:
    case Phase::Starting:
      return PoolWorkerState::Starting;
    case Phase::Serving:
      return facts.health && facts.health->report.slots_busy > 0 ? PoolWorkerState::Busy
                                                                 : PoolWorkerState::Ready;
    case Phase::Ended:
      return facts.category == ExitCategory::Stopped ? PoolWorkerState::Stopped
                                                     : PoolWorkerState::Failed;
    default:
      return PoolWorkerState::Draining;
  }
}

bool has_process(const WorkerFacts& facts) {
  return facts.phase >= Phase::Starting && facts.phase < Phase::Reclaiming;
}

}  // namespace llorch::pool
