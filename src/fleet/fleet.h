// Fleet: everything the orchestrator knows, as values. Owned by one thread; decide() moves it on.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fleet/events.h"
#include "fleet/failover_policy.h"
#include "fleet/handles.h"
#include "fleet/host_memory.h"
#include "fleet/host_policy.h"
#include "fleet/key_policy.h"
#include "fleet/placement.h"
#include "fleet/prefix_table.h"
#include "fleet/queue.h"
#include "fleet/records.h"
#include "fleet/speeds.h"

namespace llorch::fleet {

struct FleetLimits {
  std::size_t jobs_max = 10'000;
  std::int64_t body_bytes_max = std::int64_t{256} << 20U;
  std::size_t prefix_entries = std::size_t{1} << 18U;
  bool keeps_why = true;  // score sheets go into the records
};

inline constexpr Millis kFollowerPatience{10'000};
inline constexpr Millis kRecoveredPatience{30'000};  // to be followed, and to find its arithmetic
inline constexpr Millis kRecoveryHold{2000};         // for hosts to answer before anything is sent
inline constexpr Millis kNoCandidatePatience{60'000};
inline constexpr Millis kReturnPatience{300'000};   // where a host that has the model may return
inline constexpr Millis kTurnPatience{60'000};      // for memory, before workers must make room
inline constexpr std::uint32_t kRefusalsMax = 100;  // by workers, of one job

// Where a live job is. An ended one is not here any more.
enum class Phase : std::uint8_t {
  Accepting,   // its first record is being written; nothing was promised
  Queued,      // waits for a worker
  Dispatched,  // sent to one
  Running,     // which has begun
  Moving,      // its worker was lost; waits for the cause, or for another worker
  Ending,      // was told to stop; its attempt is being cut
  Closing,     // its last record is being written
};
std::string_view name(Phase phase);
JobState shown_state(Phase phase);

struct Job {
  JobId id;
  SubmittedRecord facts;
  std::vector<std::uint64_t> prefix;
  KeyIndex key = kNone;
  ModelIndex model = kNone;
  LineIndex line = kNone;
  std::uint64_t labels = 0;
  HostIndex pin = kNone;
  bool is_parked = false;

  Phase phase = Phase::Accepting;
  TimePoint phase_since{};
  TimePoint submitted{};
  TimePoint deadline = TimePoint::max();
  TimePoint exact_until{};  // recovered: another arithmetic is not tried before

  // Records.
  std::uint32_t next_seq = 0;
  std::uint32_t writes_open = 0;
  std::uint32_t first_failed_seq = kNone;
  std::uint32_t end_seq = kNone;  // of the last record, once it is written
  bool has_record = true;         // the first one is stored, or on its way

  // The attempt. One at a time: worker is set from open_attempt to AttemptEnded.
  std::uint32_t attempts = 0;
  WorkerIndex worker = kNone;
  bool is_cut = false;
  std::optional<LossCause> cut_cause;  // why we cut it, unless the job was to stop
  TimePoint dispatched_at{};
  double predicted_prefill_ms = 0;
  float predicted_cached = 0;
  std::uint32_t streams = 1;  // on its worker when it began

  // The answer so far.
  std::uint64_t told = 0;
  std::uint64_t exactness = 0;  // of those who told it; 0: nobody yet
  bool is_exact = true;
  std::uint32_t prompt_tokens = 0;
  double device_ms = 0;

  // Losses.
  Suspicion suspicion;
  std::uint64_t killed_life = 0;  // of the worker it was last held to have killed
  std::uint8_t moves = 0;
  std::uint32_t refusals = 0;
  TimePoint lost_at{};
  HostIndex from_host = kNone;
  std::string from_worker;

  // The end.
  std::optional<StopCause> stop;
  TimePoint stop_at{};
  EndedRecord end;  // Closing
  std::vector<std::pair<RequestId, TimePoint>> stop_requests;
  RequestId submit_request = 0;

  // Waiting.
  std::uint32_t followers = 0;
  std::uint64_t followers_change = 0;  // the newest that was heard of
  TimePoint unfollowed_since = TimePoint::max();
  Millis follower_patience = kFollowerPatience;
  double cost_s = 0;
  bool was_charged = false;
  double predicted_wait_ms = 0;
  double told_eta_ms = -1;
  TimePoint told_eta_at{};
  std::size_t told_reason = 0;                 // hash of what it waits for, as it was told; 0: none
  TimePoint nowhere_since = TimePoint::max();  // nobody could take it at any look since
  std::int64_t tokens_reserved = 0;
};

struct Worker {
  WorkerId id;             // empty: its load has not named it yet
  std::uint64_t life = 0;  // unique; 0: a free row
  std::uint64_t load = 0;  // the order that makes it; 0: somebody else's
  std::uint32_t start = 0;
  HostIndex host = kNone;
  DeviceIndex device = kNone;
  ModelIndex model = kNone;
  std::uint32_t view = kNone;  // in its model
  SeenState state = SeenState::Loading;
  std::int64_t bytes = 0;
  bool is_pinned = false;
  bool is_leaving = false;  // we told it to stop
  TimePoint leaving_since{};
  std::optional<LossCause> cause;  // what it died of, where the pool said so
  TimePoint ready_at{};
  TimePoint idle_since{};
  TimePoint load_began{};
  TimePoint closed_until{};  // it refused a job a moment ago
  TimePoint room_until{};    // it takes no jobs: another model waits for its memory
  TimePoint token_seen_at{};
  Breaker breaker;
  struct Running {
    JobIndex job = kNone;
    TimePoint predicted_end{};
  };
  std::vector<Running> running;
};

struct Device {
  HostIndex host = kNone;
  std::uint32_t number = 0;
  SeenDevice seen;
};

// A load that failed: not again there before `until`.
struct LoadPause {
  TimePoint until{};
  Refusal reason = Refusal::LoadFailed;  // HostDown: its pool could not be asked
  int accidents = 0;                     // one after the other
};

struct Host {
  HostId id;
  HostFacts facts;
  std::uint64_t labels = 0;
  std::vector<DeviceIndex> devices;
  std::vector<WorkerIndex> workers;
  std::unordered_map<ModelIndex, SeenModel> models;
  std::unordered_map<ModelIndex, LoadPause> load_pauses;
  std::int64_t disk_free_bytes = 0;
  double link_bytes_per_second = 0;
  bool was_seen = false;
  std::uint64_t pool_start = 0;
  std::uint64_t revision = 0;
};

struct Model {
  ModelHash hash;
  std::string name;
  std::int64_t weight_bytes = 0;
  SpeedIndex speed = 0;           // over all devices
  std::vector<WorkerView> views;  // of its workers
  std::uint32_t slots = 0;        // of those that take work
  std::uint16_t slots_seen = 0;   // of its newest worker; 0: there was none
  std::uint32_t free_slots = 0;
  std::vector<HostIndex> hosts;  // that know it
  std::vector<DeviceView> devices;
  TimePoint devices_at{};  // when that list was made
  std::vector<LineIndex> lines;
  std::size_t next_line = 0;
  std::string load_error;  // the newest
};

// Jobs that any worker of the same set may run.
struct Line {
  ModelIndex model = kNone;
  HostIndex pin = kNone;
  std::uint64_t labels = 0;
  TimePoint next_look{};  // with all slots taken: when a load is considered again
  TimePoint nowhere_since = TimePoint::max();  // of its front
  std::string reason;                          // what its front waits for, beside its turn
};

// When the next of some running jobs is likely to end; looked at now and then.
struct NextEnd {
  TimePoint looked_at{};
  TimePoint at = TimePoint::max();  // none runs
};

struct Key {
  KeyId id;
  KeyFacts facts;
  KeyUsage usage;
  std::size_t jobs = 0;
  std::int64_t body_bytes = 0;
  bool is_dirty = false;  // its usage is to be kept
  NextEnd next_end;       // of its jobs
};

// Counted, shown in metrics.
struct FleetCounters {
  std::uint64_t submitted = 0;
  std::uint64_t refused = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t attempts = 0;
  std::uint64_t moves = 0;
  std::uint64_t late_events = 0;  // about attempts and jobs that are no more
  std::uint64_t loads = 0;
  std::uint64_t evictions = 0;
};

struct Timer {
  TimePoint at{};
  JobIndex job = kNone;
  JobId id;

  bool operator<(const Timer& other) const { return at > other.at; }  // the earliest on top
};

// A job was lost with a worker, and the cause is not known yet.
struct Obituary {
  std::uint64_t life = 0;  // of the worker
  TimePoint at{};
  JobId job;
};

struct Fleet {
  explicit Fleet(FleetLimits the_limits = {}, Boot the_boot = 1)
      : limits(the_limits), boot(the_boot), prefixes(the_limits.prefix_entries) {}

  FleetLimits limits;
  Boot boot;
  std::int64_t wall_offset_ms = 0;  // wall time minus ours, as of the newest tick

  std::vector<Job> jobs;  // rows; free ones are in free_jobs
  std::vector<JobIndex> free_jobs;
  std::unordered_map<JobId, JobIndex, JobIdHash> job_by_id;
  std::int64_t body_bytes = 0;
  Queue queue;
  std::vector<Line> lines;
  std::map<std::pair<ModelIndex, std::pair<HostIndex, std::uint64_t>>, LineIndex> line_by_needs;
  std::vector<JobId> parked;  // cannot go where there is room; looked at again by the tick
  std::priority_queue<Timer> timers;
  JobIndex eta_cursor = 0;

  std::vector<Host> hosts;
  std::unordered_map<HostId, HostIndex> host_by_id;
  HostMemory memory;
  std::vector<Device> devices;
  std::vector<Worker> workers;
  std::vector<WorkerIndex> free_workers;
  std::vector<Model> models;
  std::unordered_map<ModelHash, ModelIndex, ModelHashHash> model_by_hash;
  std::vector<std::string> labels;  // their index is their bit
  std::uint64_t next_life = 1;
  std::uint64_t next_load = 1;
  std::vector<WorkerIndex> reopening;  // closed for a time; the tick looks when it is over
  std::vector<Obituary> obituaries;    // by time
  TimePoint hold_until{};              // after a start, until the hosts have answered
  bool is_closing = false;             // the orchestrator ends: nothing is accepted

  std::vector<Key> keys;
  std::vector<KeyIndex> dirty_keys;  // whose usage is to be kept
  KeyIndex room_wanted_by = kNone;   // the last key that found the queue full,
  TimePoint room_wanted_until{};     // and how long its share is kept for it
  NextEnd next_end;                  // of all jobs
  std::unordered_map<KeyId, KeyIndex, KeyIdHash> key_by_id;
  Speeds speeds;
  PrefixTable prefixes;
  ScoreSheet sheet;  // of the newest placement
  FleetCounters counters;
};

// Lookups; kNone or null where there is none.
Job* find_job(Fleet& fleet, const JobId& id);
const Job* find_job(const Fleet& fleet, const JobId& id);
KeyIndex find_or_add_key(Fleet& fleet, KeyId id);
HostIndex find_or_add_host(Fleet& fleet, const HostId& id);
HostIndex find_host(const Fleet& fleet, const HostId& id);
ModelIndex find_or_add_model(Fleet& fleet, const ModelHash& hash);
ModelIndex find_model(const Fleet& fleet, const ModelHash& hash);
JobIndex index_of(const Fleet& fleet, const Job& job);
// Hosts make labels, 64 in all; further ones are not told apart from none. A job that needs one
// that no host has ever had asks for all bits, which no host has.
std::uint64_t host_labels(Fleet& fleet, const std::vector<std::string>& labels);
std::uint64_t needed_labels(const Fleet& fleet, const std::vector<std::string>& labels);

UnixMs wall_ms(const Fleet& fleet, TimePoint now);

}  // namespace llorch::fleet
