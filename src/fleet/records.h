// What is stored about jobs, as plain values: the records of a job, the groups of its answer, the
// entries beside them. job_fold makes a job of its records again; job_store keeps them; nothing
// here knows how. record_codec.h turns a record into bytes and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "fleet/ids.h"

namespace llorch::fleet {

// Stored times are those of the wall: milliseconds since 1970, UTC. 0: none.
using UnixMs = std::int64_t;

// Numbers of these enumerations are stored: add at the end, never renumber.
enum class JobKind : std::uint8_t { Execute, Completion, Chat, Embedding };
enum class JobClass : std::uint8_t { Interactive, Batch };
// Who the job lives for: nobody (runs on alone), whoever follows its events, one connection.
enum class Holder : std::uint8_t { Detached, Followed, Connection };
enum class Mode : std::uint8_t { Fast, Spread, Pin };
enum class JobState : std::uint8_t { Queued, Dispatched, Running, Completed, Failed, Cancelled };
enum class StopCause : std::uint8_t { Asked, FollowersGone, Deadline, KeyRevoked, ShutDown };
// Why an attempt ended without an answer's end. The first three may be the job's own doing.
enum class LossCause : std::uint8_t { Crash, OutOfMemory, Hang, Host, Link, WorkerError, Refused };

std::string_view name(JobKind kind);    // "execute", "completion", "chat", "embedding"
std::string_view name(JobClass cls);    // "interactive", "batch"
std::string_view name(Holder holder);   // "detached", "followed", "connection"
std::string_view name(Mode mode);       // "fast", "spread", "pin"
std::string_view name(JobState state);  // as on the wire: "queued", "dispatched", …
std::string_view name(StopCause cause);
std::string_view name(LossCause cause);
std::optional<JobClass> job_class_from_name(std::string_view text);
std::optional<Mode> mode_from_name(std::string_view text);
std::optional<JobState> job_state_from_name(std::string_view text);

inline bool is_end(JobState state) {
  return state >= JobState::Completed;
}

// Record 0 of every job. The request's body is stored beside it (JobWrite::body).
struct SubmittedRecord {
  KeyId key;
  JobKind kind = JobKind::Execute;
  JobClass cls = JobClass::Interactive;
  Holder holder = Holder::Detached;
  ModelHash model;
  std::string model_name;  // as it was asked for
  Mode mode = Mode::Fast;
  std::string pin_host;             // with Mode::Pin
  std::vector<std::string> labels;  // that its host must have
  std::uint64_t seed = 0;
  UnixMs submitted_ms = 0;
  UnixMs deadline_ms = 0;
  std::uint32_t prompt_tokens = 0;  // predicted
  std::uint32_t max_tokens = 0;     // 0: as many as the context has room for
  std::uint32_t choices = 1;
  std::uint32_t body_bytes = 0;
  std::uint64_t body_hash[4] = {};  // SHA-256 of the body
  std::string idempotency;          // the word of Idempotency-Key; empty: none
  std::string correlation_id;
};

struct DispatchedRecord {
  Boot boot = 0;
  std::uint32_t attempt = 0;
  std::string host;
  std::string worker;
  std::string why;  // the score sheet as text, for `llorch why` once the job has ended
  UnixMs at_ms = 0;
  std::uint64_t exactness = 0;  // equal numbers: the same arithmetic, bit for bit
};

struct StartedRecord {
  Boot boot = 0;
  std::uint32_t attempt = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  UnixMs at_ms = 0;
};

struct LostRecord {
  Boot boot = 0;
  std::uint32_t attempt = 0;
  LossCause cause = LossCause::Crash;
  std::uint8_t kills = 0;  // workers this job is held to have killed, this one counted
  std::uint8_t moves = 0;  // so far, this one counted
  UnixMs at_ms = 0;
};

// From here on it can only end as cancelled or failed.
struct StopRecord {
  StopCause cause = StopCause::Asked;
  UnixMs at_ms = 0;
};

// The last record of every job.
struct EndedRecord {
  JobState state = JobState::Completed;
  ErrorCode code = ErrorCode::Internal;  // unless completed
  std::string message;
  std::string stop_reason;  // when completed: the worker's word
  std::uint32_t prompt_tokens = 0;
  std::uint32_t tokens_out = 0;
  std::uint32_t attempts = 0;
  std::int64_t device_ms = 0;
  UnixMs at_ms = 0;
  std::string why;  // of one that waited when it ended: the score sheet then, for people
};

// The index is stored as the record's kind: add at the end.
using Record = std::variant<SubmittedRecord, DispatchedRecord, StartedRecord, LostRecord,
                            StopRecord, EndedRecord>;

// One record to append: the unit of atomicity. Refused (Conflict) unless the job has exactly
// `expected_seq` records, or once it has ended.
struct JobWrite {
  JobId job;
  std::uint32_t expected_seq = 0;  // this record's own number
  Record record;
  bool eager = false;  // somebody waits for it: sync at once; else within 200 ms
  std::shared_ptr<const std::string> body;  // with record 0; the core leaves it to the orchestrator
};

enum class WriteOutcome : std::uint8_t { Durable, Conflict, Failed };

// All that is stored of a job but its body and its answer.
struct JobRecords {
  JobId job;
  std::vector<Record> records;  // by number
  Position stored;              // ids of its answer that are stored
};

// Ids of one answer with the bytes of the events that told them: both or neither are there.
struct ChoiceIds {
  std::uint32_t choice = 0;
  std::vector<std::int32_t> ids;
};
struct AnswerGroup {
  AttemptId attempt;
  Position from;  // told before it
  std::vector<ChoiceIds> ids;
  std::string events;
};

// Small things by name, each with a revision.
// Numbers are stored: added to at the end.
enum class Bucket : std::uint8_t { Hosts, Keys, Speeds, Usage, Audit, Settings, HostModels };
using Revision = std::uint64_t;
struct Entry {
  std::string key;
  std::string value;
  Revision revision = 0;
};

// Which jobs to list, newest first.
struct JobFilter {
  std::optional<KeyId> key;
  std::vector<JobState> states;  // empty: all. Only ends are told apart; a live job is Queued here
  UnixMs submitted_from_ms = 0;
  UnixMs submitted_until_ms = 0;  // 0: now
  std::uint32_t limit = 100;
};
struct Cursor {
  std::int64_t before = 0;  // the store's own number; 0: from the newest
};
struct JobPage {
  std::vector<JobRecords> jobs;
  std::optional<Cursor> next;
};

}  // namespace llorch::fleet
