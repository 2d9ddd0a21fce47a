// The life of one worker as a pure function: what is known about it and the time of day go in, what
// to do comes out. No process, file or clock is touched here.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/pool_info.h"
#include "contract/worker_info.h"
#include "pool/pool_timing.h"

namespace llorch::pool {

using TimePoint = std::chrono::steady_clock::time_point;

// Where a worker is in its life. Planning has no process; the others up to Killing have one.
enum class Phase : std::uint8_t {
  Planning,     // is about to be started again: waits for its memory plan, or the next port
  Starting,     // loads
  Serving,      // ready
  Draining,     // was asked to finish what it has (POST /shutdown)
  Terminating,  // was sent SIGTERM
  Killing,      // was sent SIGKILL
  Reclaiming,   // its process is gone; the GPU's memory is not back yet
  Ended,
};
std::string_view name(Phase phase);

// How its processes ended, as far as anybody knows.
struct EndFacts {
  bool has_note = false;   // the keeper wrote down the rest; without, it was killed itself
  bool never_ran = false;  // the keeper had not started it yet
  bool rebooted = false;   // the machine was restarted since
  std::int32_t code = 0;
  std::int32_t signal = 0;
  bool oom_kill = false;
  bool ordered = false;
  bool told = false;
  bool orphaned = false;
  bool port_taken = false;  // somebody else listens on its port
  std::string start_error;
  std::string last_line;  // of its log
};

// One answer of a worker to the probe.
struct HealthAnswer {
  contract::HealthReport report;
  std::optional<std::int64_t> steps;  // forward passes so far, where they were asked for
};

struct WorkerFacts {
  Phase phase = Phase::Starting;
  TimePoint since{};  // of the phase
  TimePoint ready_deadline{};
  bool is_ready = false;  // its callback came, or an adopted one was seen healthy
  bool adopted = false;   // from a manager before: its callback may have been lost
  bool uses_gpu = false;  // memory to see back at the end
  std::int32_t port_tries = 0;

  // Orders.
  bool stop_asked = false;
  std::optional<std::chrono::milliseconds> drain_patience;  // instead of the timing's
  bool drain_asked_anew = false;                            // while it drains
  bool restart_asked = false;
  bool shutdown_failed = false;  // POST /shutdown did not reach it

  // What probes said. One of each kind is under way at most.
  bool probing = false;
  bool probing_token = false;
  TimePoint next_probe{};
  int failures = 0;   // answers in a row that did not come
  int unhealthy = 0;  // answers in a row that said unhealthy
  std::string last_failure;
  std::optional<HealthAnswer> health;  // the newest
  TimePoint health_at{};
  // While it has work: when it was last seen to get on with it (a token, a forward pass, or the
  // first sight of work after a pause).
  std::optional<TimePoint> proof_of_life;
  TimePoint last_work{};      // when it last had some, or was asked for a token
  bool token_failed = false;  // it did not make the token that was asked for

  std::optional<EndFacts> end;  // its processes are gone
  bool memory_back = false;
  bool keeper_killed = false;

  // Why it is being ended or has ended.
  contract::ExitCategory category = contract::ExitCategory::None;
  std::string reason;
};

enum class Action : std::uint8_t {
  Probe,        // ask for /health
  ProbeToken,   // ask for one token
  AskShutdown,  // POST /shutdown
  SendTerm,     // to the keeper, which passes it on
  OrderKill,    // the keeper kills the worker
  KillKeeper,   // it did not: the kernel does, with both
  SpawnAgain,   // on the next port
  CheckMemory,  // whether the GPU has its memory back
  Plan,         // memory, then spawn: a restart
  BecameReady,  // the facts are to be kept
  EndBegan,     // the reason is to be kept
  Ended,        // final, unless a restart follows
};
std::string_view name(Action action);

struct Step {
  std::vector<Action> actions;  // in this order
  TimePoint wake{};             // when to ask again if nothing happens before
};

inline constexpr std::int32_t kPortTriesMax = 8;

// What happened. Each changes the facts only; ask next_step afterwards.
void note_spawned(WorkerFacts& facts, TimePoint now, TimePoint ready_deadline);
void note_not_spawned(WorkerFacts& facts, std::string why);
void note_ready(WorkerFacts& facts);  // the callback came
// Out of memory or descriptors (us) and QueueFull (a worker whose connections are all taken) do not
// count against it.
void note_health(WorkerFacts& facts, const Result<HealthAnswer>& answer, TimePoint now);
// Failed only when no token came in time; a refusal is an answer.
void note_token_probe(WorkerFacts& facts, bool failed);
void note_shutdown(WorkerFacts& facts, bool failed);
void note_memory(WorkerFacts& facts, bool is_back, TimePoint now);
void ask_stop(WorkerFacts& facts, std::optional<std::chrono::milliseconds> patience = {});
void ask_restart(WorkerFacts& facts);

// Decides and moves the facts on. An action is given once; calling again at the same time gives
// none.
Step next_step(WorkerFacts& facts, TimePoint now, const PoolTiming& timing);

// How long it may go on with what it runs once it is asked to stop.
std::chrono::milliseconds drain_patience(const WorkerFacts& facts, const PoolTiming& timing);

// What the API shows.
contract::PoolWorkerState shown_state(const WorkerFacts& facts);
bool has_process(const WorkerFacts& facts);

}  // namespace llorch::pool
