// What can happen to the fleet. Every event carries all that its decision needs from outside: ids,
// seeds and wall time are drawn by whoever sends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "fleet/handles.h"
#include "fleet/host_policy.h"
#include "fleet/key_policy.h"
#include "fleet/records.h"

namespace llorch::fleet {

using HostId = std::string;    // its name, as the user wrote it
using WorkerId = std::string;  // its name on its host
// A client's question that waits for its answer. 0: nobody waits.
using RequestId = std::uint64_t;

// --- jobs ---

struct Submitted {
  RequestId request = 0;
  JobId job;
  SubmittedRecord facts;
  std::vector<std::uint64_t> prefix;  // hashes of its prompt's blocks, see prefix_table.h
};

// The store's word about one record. For each job they come in the order of the writes.
struct Written {
  JobId job;
  std::uint32_t seq = 0;
  WriteOutcome outcome = WriteOutcome::Durable;
};

struct StopAsked {
  JobId job;
  StopCause cause = StopCause::Asked;
  RequestId request = 0;  // is answered when the job has ended
};

// Told by many threads: an older count may come behind a newer one.
struct FollowersChanged {
  JobId job;
  std::uint32_t followers = 0;
  std::uint64_t change = 0;  // its number; a lower one than the last is out of date
};

struct AttemptStarted {
  AttemptId attempt;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
};

// Once a second for all streams of an io thread.
struct Progress {
  struct Item {
    AttemptId attempt;
    std::uint64_t told = 0;  // ids so far, over all choices and attempts
    std::uint32_t byte_age_ms = 0;
    std::uint32_t token_age_ms = 0;
  };
  std::vector<Item> items;
};

// How an attempt ended. Comes exactly once for each that was opened; one of an earlier boot, or a
// second one, is dropped.
enum class AttemptEnd : std::uint8_t {
  Completed,
  Failed,   // an error that another worker would give, too
  Refused,  // 429 or 503 before it began
  Lost,     // cut without an end, or an error that another worker might not give
  Cut,      // as we asked
};
struct AttemptEnded {
  AttemptId attempt;
  AttemptEnd end = AttemptEnd::Completed;
  ErrorCode code = ErrorCode::Internal;  // Failed, Refused, Lost
  std::string message;
  std::string stop_reason;          // Completed: the worker's word
  std::optional<LossCause> cause;   // Lost, where it is known already
  std::uint64_t told = 0;           // ids so far, over all choices and attempts
  std::uint32_t prompt_tokens = 0;  // 0: not known
  std::uint32_t new_tokens = 0;     // by this attempt
  double prefill_ms = 0;            // 0: not known
  double decode_ms = 0;
};

// --- hosts, workers, models ---

enum class SeenState : std::uint8_t { Loading, Serving, Draining, Ended };
struct SeenWorker {
  WorkerId id;
  std::uint32_t start = 0;  // its birth; another process has another
  ModelHash model;
  std::uint32_t device = 0;  // number on its host
  SeenState state = SeenState::Serving;
  std::optional<LossCause> cause;  // Ended: what it died of; none: it was stopped
  std::uint16_t slots = 1;
  std::uint32_t context = 0;
  std::int64_t bytes = 0;
  std::uint64_t exactness = 0;  // model hash, backend, build and device class in one number
  bool is_pinned = false;
  bool can_resume = true;
  double ready_in_ms = 0;          // Loading
  std::uint32_t token_age_ms = 0;  // of the newest token it made
};
struct SeenDevice {
  std::uint32_t number = 0;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
  double bytes_per_second = 0;  // memory bandwidth
};
struct SeenModel {
  ModelHash model;
  std::string name;
  std::int64_t weight_bytes = 0;
  std::int64_t need_bytes = 0;     // with cache and buffers
  std::int64_t missing_bytes = 0;  // not on its disk yet
  std::uint32_t context = 0;
  std::uint64_t devices = 0;  // bits: numbers of the devices that have a program for it
};
struct SeenSpeed {
  ModelHash model;
  std::uint32_t device = 0;
  double prefill_tps = 0;
  std::vector<std::pair<std::uint32_t, double>> decode_tps;  // streams, tokens per second of each
  double load_ms = 0;
};

// The whole state of one host's pool.
struct PoolSeen {
  HostId host;
  std::uint64_t pool_start = 0;  // its birth
  std::uint64_t revision = 0;    // grows with every change; an older one than before is dropped
  std::vector<SeenWorker> workers;
  std::vector<SeenDevice> devices;
  std::vector<SeenModel> models;
  std::vector<SeenSpeed> speeds;
  std::vector<std::string> labels;
  std::int64_t disk_free_bytes = 0;
  double link_bytes_per_second = 0;  // for fetching models; 0: not known
};
struct PoolLost {
  HostId host;
  std::string reason;
};
struct LoadEnded {
  HostId host;
  std::uint64_t load = 0;  // of its plan
  std::optional<Error> error;
  WorkerId worker;  // unless it failed
  std::uint32_t start = 0;
  // What its pool says of it by now, so that the first job there knows its arithmetic; none: the
  // next PoolSeen has it.
  std::optional<SeenWorker> seen = std::nullopt;
  // With an error: somebody killed it, it hung, memory ran out. Says nothing about the model.
  bool was_accident = false;
};
enum class HostWish : std::uint8_t { Up, Down };
struct HostAsked {
  HostId host;
  HostKind kind = HostKind::Ssh;
  HostWish wish = HostWish::Up;
};
struct HostStepEnded {
  HostId host;
  HostAction action = HostAction::Connect;
  HostStepOutcome outcome;
};

// --- the rest ---

struct KeyChanged {
  KeyId key;
  KeyFacts facts;
};
// The orchestrator is told to end: requests that live with their connections end now, so that they
// hear why, and nothing more is accepted. Tasks stay in the record.
struct ShuttingDown {};
// Several times a second.
struct Tick {
  UnixMs wall_ms = 0;
};

using Event = std::variant<Submitted, Written, StopAsked, FollowersChanged, AttemptStarted,
                           Progress, AttemptEnded, PoolSeen, PoolLost, LoadEnded, HostAsked,
                           HostStepEnded, KeyChanged, ShuttingDown, Tick>;

}  // namespace llorch::fleet
