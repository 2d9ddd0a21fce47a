// The bodies of the orchestrator's own API (tasks, hosts, models, workers, keys), each described
// once: JSON and schema come out of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::contract {

inline constexpr std::array<std::string_view, 4> kTaskKinds = {"execute", "completion", "chat",
                                                               "embedding"};
inline constexpr std::array<std::string_view, 2> kTaskClasses = {"interactive", "batch"};
inline constexpr std::array<std::string_view, 3> kTaskModes = {"fast", "spread", "pin"};
inline constexpr std::array<std::string_view, 6> kTaskStates = {
    "queued", "dispatched", "running", "completed", "failed", "cancelled"};
inline constexpr std::array<std::string_view, 2> kScopes = {"infer", "admin"};
inline constexpr std::size_t kTaskLabelsMax = 16;
inline constexpr std::size_t kNameBytesMax = 256;

// POST /v2/tasks, beside what the worker is asked. For kind "execute" the fields of /execute stand
// beside these; for the others `request` is the body of OpenAI's endpoint of that kind.
struct TaskOptions {
  std::string kind = "execute";
  std::string model;  // of an execute; the others name it in `request`
  std::string cls = "interactive";
  bool detach = false;  // runs on when nobody follows it
  std::string mode = "fast";
  std::string host;                         // with mode "pin"
  std::vector<std::string> labels;          // that its host must have
  std::optional<std::int64_t> deadline_ms;  // since 1970; X-Deadline says the same

  friend bool operator==(const TaskOptions&, const TaskOptions&) = default;
};
template <class V, Described<TaskOptions> T>
void describe(V& v, T& value) {
  v("kind", value.kind, {.names = kTaskKinds});
  v("model", value.model, {.bytes = {0, kNameBytesMax}});
  v("class", value.cls, {.names = kTaskClasses});
  v("detach", value.detach, {.doc = "The job runs on when nobody follows its events."});
  v("mode", value.mode, {.names = kTaskModes});
  v("host", value.host, {.bytes = {0, kNameBytesMax}, .doc = "With mode pin."});
  v("labels", value.labels, {.bytes = {1, 64}, .max_items = kTaskLabelsMax});
  v("deadline_ms", value.deadline_ms,
    {.min = 0, .max = 9e12, .doc = "Milliseconds since 1970, as X-Deadline."});
}

// 202 of POST /v2/tasks.
struct TaskAccepted {
  std::string job_id;
  std::string status = "queued";
  std::int64_t queue_position = 0;
  double predicted_start_ms = 0;
  std::string events_url;

  friend bool operator==(const TaskAccepted&, const TaskAccepted&) = default;
};
template <class V, Described<TaskAccepted> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("queue_position", value.queue_position);
  v("predicted_start_ms", value.predicted_start_ms, {.thousandths = true});
  v("events_url", value.events_url);
}

// DELETE /v2/tasks/{id}: it has ended.
struct TaskStopped {
  std::string job_id;
  std::string status;
  double stop_ms = 0;  // from the request to the end; 0: it had ended before

  friend bool operator==(const TaskStopped&, const TaskStopped&) = default;
};
template <class V, Described<TaskStopped> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("stop_ms", value.stop_ms, {.thousandths = true});
}

// One try of a job on one worker.
struct TaskAttempt {
  std::int64_t boot = 0;    // of the orchestrator that made it
  std::int64_t number = 0;  // from 1 in each boot
  std::string host;
  std::string worker;
  std::string dispatched_at;  // RFC 3339, UTC
  std::string started_at;     // empty: it never did
  std::string lost_at;        // empty: it was not lost
  std::string cause;          // of the loss
  std::int64_t cached_tokens = 0;

  friend bool operator==(const TaskAttempt&, const TaskAttempt&) = default;
};
template <class V, Described<TaskAttempt> T>
void describe(V& v, T& value) {
  v("boot", value.boot);
  v("number", value.number);
  v("host", value.host);
  v("worker", value.worker);
  v("dispatched_at", value.dispatched_at);
  v("started_at", value.started_at, {.omit_empty = true});
  v("lost_at", value.lost_at, {.omit_empty = true});
  v("cause", value.cause, {.omit_empty = true});
  v("cached_tokens", value.cached_tokens);
}

// GET /v2/tasks/{id}, and one of a list.
struct TaskView {
  std::string job_id;
  std::string status;
  std::string kind;
  std::string cls;
  std::string holder;  // "detached", "followed", "connection"
  std::string model;
  std::string model_hash;
  std::string key;  // id of the key; empty: none
  std::string mode;
  std::string host;  // where it is or was; empty: nowhere yet
  std::string worker;
  std::vector<std::string> labels;
  std::string submitted_at;
  std::string deadline;
  std::string ended_at;
  std::optional<std::int64_t> queue_position;
  std::optional<double> predicted_start_ms;
  std::uint64_t seed = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens_out = 0;
  std::int64_t device_ms = 0;
  std::string stop_reason;
  std::string code;  // of a failure
  std::string message;
  std::string correlation_id;
  std::string events_url;
  std::vector<TaskAttempt> attempts;

  friend bool operator==(const TaskView&, const TaskView&) = default;
};
template <class V, Described<TaskView> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("kind", value.kind, {.names = kTaskKinds});
  v("class", value.cls, {.names = kTaskClasses});
  v("holder", value.holder);
  v("model", value.model);
  v("model_hash", value.model_hash);
  v("key", value.key, {.omit_empty = true});
  v("mode", value.mode, {.names = kTaskModes});
  v("host", value.host, {.omit_empty = true});
  v("worker", value.worker, {.omit_empty = true});
  v("labels", value.labels, {.omit_empty = true});
  v("submitted_at", value.submitted_at);
  v("deadline", value.deadline, {.omit_empty = true});
  v("ended_at", value.ended_at, {.omit_empty = true});
  v("queue_position", value.queue_position);
  v("predicted_start_ms", value.predicted_start_ms, {.thousandths = true});
  v("seed", value.seed);
  v("prompt_tokens", value.prompt_tokens);
  v("tokens_out", value.tokens_out);
  v("device_ms", value.device_ms);
  v("stop_reason", value.stop_reason, {.omit_empty = true});
  v("code", value.code, {.omit_empty = true});
  v("message", value.message, {.omit_empty = true});
  v("correlation_id", value.correlation_id);
  v("events_url", value.events_url);
  v("attempts", value.attempts);
}

struct TaskPage {
  std::vector<TaskView> tasks;  // newest first
  std::string next;             // for ?after=; empty: these were the last

  friend bool operator==(const TaskPage&, const TaskPage&) = default;
};
template <class V, Described<TaskPage> T>
void describe(V& v, T& value) {
  v("tasks", value.tasks);
  v("next", value.next, {.omit_empty = true});
}

// GET /v2/tasks/{id}/why.
struct WhyLine {
  std::string host;
  std::string worker;  // empty: it would be loaded there
  std::int64_t device = 0;
  double finish_ms = 0;  // the sum of the rest
  double wait_ms = 0;
  double load_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  double harm_ms = 0;  // what its neighbours lose

  friend bool operator==(const WhyLine&, const WhyLine&) = default;
};
template <class V, Described<WhyLine> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("worker", value.worker, {.omit_empty = true});
  v("device", value.device);
  v("finish_ms", value.finish_ms, {.thousandths = true});
  v("wait_ms", value.wait_ms, {.thousandths = true});
  v("load_ms", value.load_ms, {.thousandths = true});
  v("prefill_ms", value.prefill_ms, {.thousandths = true});
  v("decode_ms", value.decode_ms, {.thousandths = true});
  v("harm_ms", value.harm_ms, {.thousandths = true});
}
struct WhyRefusal {
  std::string reason;
  std::int64_t count = 0;

  friend bool operator==(const WhyRefusal&, const WhyRefusal&) = default;
};
template <class V, Described<WhyRefusal> T>
void describe(V& v, T& value) {
  v("reason", value.reason);
  v("count", value.count);
}
// What was thought when it was sent somewhere.
struct WhyDispatch {
  std::int64_t attempt = 0;
  std::string host;
  std::string worker;
  std::string at;
  std::string sheet;  // for people

  friend bool operator==(const WhyDispatch&, const WhyDispatch&) = default;
};
template <class V, Described<WhyDispatch> T>
void describe(V& v, T& value) {
  v("attempt", value.attempt);
  v("host", value.host);
  v("worker", value.worker);
  v("at", value.at);
  v("sheet", value.sheet);
}
struct WhyView {
  std::string job_id;
  std::string status;
  std::vector<WhyLine> candidates;  // of now; of a live job
  std::vector<WhyRefusal> refused;
  std::string sheet;  // the same for people
  std::vector<WhyDispatch> dispatches;

  friend bool operator==(const WhyView&, const WhyView&) = default;
};
template <class V, Described<WhyView> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("candidates", value.candidates);
  v("refused", value.refused);
  v("sheet", value.sheet);
  v("dispatches", value.dispatches);
}

// --- hosts, models, workers ---

struct FleetDevice {
  std::int64_t number = 0;
  std::string name;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;

  friend bool operator==(const FleetDevice&, const FleetDevice&) = default;
};
template <class V, Described<FleetDevice> T>
void describe(V& v, T& value) {
  v("number", value.number);
  v("name", value.name);
  v("total_bytes", value.total_bytes);
  v("free_bytes", value.free_bytes);
}

struct HostView {
  std::string name;
  std::string kind;   // "local", "ssh", "joined"
  std::string state;  // "unknown", "preflight", … "gone"
  std::string reason;
  std::string step;  // what is being done about it
  std::string since;
  std::vector<std::string> labels;
  std::string pool_url;
  std::string pool_id;
  std::string version;
  std::string os;
  std::string cpu;
  std::int64_t cores = 0;
  std::int64_t disk_free_bytes = 0;
  std::vector<FleetDevice> devices;
  std::int64_t workers = 0;
  std::int64_t models = 0;  // that are on its disk
  std::int64_t running = 0;

  friend bool operator==(const HostView&, const HostView&) = default;
};
template <class V, Described<HostView> T>
void describe(V& v, T& value) {
  v("name", value.name);
  v("kind", value.kind);
  v("state", value.state);
  v("reason", value.reason, {.omit_empty = true});
  v("step", value.step, {.omit_empty = true});
  v("since", value.since);
  v("labels", value.labels);
  v("pool_url", value.pool_url, {.omit_empty = true});
  v("pool_id", value.pool_id, {.omit_empty = true});
  v("version", value.version, {.omit_empty = true});
  v("os", value.os, {.omit_empty = true});
  v("cpu", value.cpu, {.omit_empty = true});
  v("cores", value.cores);
  v("disk_free_bytes", value.disk_free_bytes);
  v("devices", value.devices);
  v("workers", value.workers);
  v("models", value.models);
  v("running", value.running);
}
struct HostList {
  std::vector<HostView> hosts;

  friend bool operator==(const HostList&, const HostList&) = default;
};
template <class V, Described<HostList> T>
void describe(V& v, T& value) {
  v("hosts", value.hosts);
}

// GET /v2/pools: the hosts' managers that are reached now.
struct PoolView {
  std::string host;
  std::string url;
  std::string pool_id;
  std::string version;
  std::string state;  // of the host

  friend bool operator==(const PoolView&, const PoolView&) = default;
};
template <class V, Described<PoolView> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("url", value.url);
  v("pool_id", value.pool_id);
  v("version", value.version);
  v("state", value.state);
}
struct PoolList {
  std::vector<PoolView> pools;

  friend bool operator==(const PoolList&, const PoolList&) = default;
};
template <class V, Described<PoolList> T>
void describe(V& v, T& value) {
  v("pools", value.pools);
}

// POST /v2/backup: where the copy goes, on the orchestrator's machine.
struct BackupRequest {
  std::string file;  // an absolute path where nothing is yet

  friend bool operator==(const BackupRequest&, const BackupRequest&) = default;
};
template <class V, Described<BackupRequest> T>
void describe(V& v, T& value) {
  v("file", value.file, {.must = true, .bytes = {1, 4096}});
}

// POST /v2/hosts: a host that is to be up from now on.
struct HostRequest {
  std::string host;  // as ssh takes it

  friend bool operator==(const HostRequest&, const HostRequest&) = default;
};
template <class V, Described<HostRequest> T>
void describe(V& v, T& value) {
  v("host", value.host, {.must = true, .bytes = {1, kNameBytesMax}});
}

struct ModelPlace {
  std::string host;
  bool downloaded = false;
  std::int64_t missing_bytes = 0;
  std::int64_t workers = 0;  // that serve it there

  friend bool operator==(const ModelPlace&, const ModelPlace&) = default;
};
template <class V, Described<ModelPlace> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("downloaded", value.downloaded);
  v("missing_bytes", value.missing_bytes);
  v("workers", value.workers);
}
struct FleetModel {
  std::string name;
  std::string hash;
  std::int64_t size_bytes = 0;
  std::int64_t context = 0;
  std::int64_t waiting = 0;  // jobs in its queue
  std::string load_error;    // the newest
  std::vector<ModelPlace> places;

  friend bool operator==(const FleetModel&, const FleetModel&) = default;
};
template <class V, Described<FleetModel> T>
void describe(V& v, T& value) {
  v("name", value.name);
  v("hash", value.hash);
  v("size_bytes", value.size_bytes);
  v("context", value.context);
  v("waiting", value.waiting);
  v("load_error", value.load_error, {.omit_empty = true});
  v("places", value.places);
}
struct FleetModelList {
  std::vector<FleetModel> models;

  friend bool operator==(const FleetModelList&, const FleetModelList&) = default;
};
template <class V, Described<FleetModelList> T>
void describe(V& v, T& value) {
  v("models", value.models);
}

struct FleetWorker {
  std::string id;  // empty: it is being started
  std::string host;
  std::string model;
  std::string state;  // "loading", "serving", "draining"
  std::int64_t device = 0;
  std::int64_t slots = 0;
  std::int64_t busy = 0;
  std::int64_t context = 0;
  std::int64_t memory_bytes = 0;
  bool pinned = false;
  bool leaving = false;  // was told to stop
  double idle_seconds = 0;
  double decode_tps = 0;  // of one stream, as learnt
  double prefill_tps = 0;

  friend bool operator==(const FleetWorker&, const FleetWorker&) = default;
};
template <class V, Described<FleetWorker> T>
void describe(V& v, T& value) {
  v("id", value.id);
  v("host", value.host);
  v("model", value.model);
  v("state", value.state);
  v("device", value.device);
  v("slots", value.slots);
  v("busy", value.busy);
  v("context", value.context);
  v("memory_bytes", value.memory_bytes);
  v("pinned", value.pinned);
  v("leaving", value.leaving);
  v("idle_seconds", value.idle_seconds, {.thousandths = true});
  v("decode_tps", value.decode_tps, {.thousandths = true});
  v("prefill_tps", value.prefill_tps, {.thousandths = true});
}
struct FleetWorkerList {
  std::vector<FleetWorker> workers;

  friend bool operator==(const FleetWorkerList&, const FleetWorkerList&) = default;
};
template <class V, Described<FleetWorkerList> T>
void describe(V& v, T& value) {
  v("workers", value.workers);
}

// GET /v2/status: the whole house in one answer.
struct FleetStatus {
  std::string version;
  std::int64_t boot = 0;
  double uptime_seconds = 0;
  std::int64_t queued = 0;
  std::int64_t running = 0;  // dispatched ones counted
  std::int64_t jobs_max = 0;
  std::int64_t submitted_total = 0;
  std::int64_t completed_total = 0;
  std::int64_t failed_total = 0;
  std::int64_t cancelled_total = 0;
  std::int64_t refused_total = 0;
  std::int64_t moves_total = 0;
  std::int64_t keys = 0;
  std::string audit_head;  // the newest hash of the audit log; empty: there is none
  std::vector<HostView> hosts;
  std::vector<FleetWorker> workers;
  std::vector<FleetModel> models;  // that run, are asked for or are on a disk
  std::vector<TaskView> tasks;     // live ones, at most 100

  friend bool operator==(const FleetStatus&, const FleetStatus&) = default;
};
template <class V, Described<FleetStatus> T>
void describe(V& v, T& value) {
  v("version", value.version);
  v("boot", value.boot);
  v("uptime_seconds", value.uptime_seconds, {.thousandths = true});
  v("queued", value.queued);
  v("running", value.running);
  v("jobs_max", value.jobs_max);
  v("submitted_total", value.submitted_total);
  v("completed_total", value.completed_total);
  v("failed_total", value.failed_total);
  v("cancelled_total", value.cancelled_total);
  v("refused_total", value.refused_total);
  v("moves_total", value.moves_total);
  v("keys", value.keys);
  v("audit_head", value.audit_head, {.omit_empty = true});
  v("hosts", value.hosts);
  v("workers", value.workers);
  v("models", value.models);
  v("tasks", value.tasks);
}

// --- keys ---

// POST /v2/keys.
struct KeyRequest {
  std::string name;
  std::string scope = "infer";
  std::vector<std::string> models;  // globs; empty: all
  std::int64_t tokens_per_day = 0;  // 0: no bound
  std::int64_t requests_per_minute = 0;

  friend bool operator==(const KeyRequest&, const KeyRequest&) = default;
};
template <class V, Described<KeyRequest> T>
void describe(V& v, T& value) {
  v("name", value.name, {.must = true, .bytes = {1, 64}});
  v("scope", value.scope, {.names = kScopes});
  v("models", value.models, {.bytes = {1, kNameBytesMax}, .max_items = 64});
  v("tokens_per_day", value.tokens_per_day, {.min = 0, .max = 1e15});
  v("requests_per_minute", value.requests_per_minute, {.min = 0, .max = 1e6});
}

struct KeyView {
  std::string id;
  std::string name;
  std::string scope;
  std::vector<std::string> models;
  std::int64_t tokens_per_day = 0;
  std::int64_t requests_per_minute = 0;
  bool revoked = false;
  std::string created_at;
  std::int64_t tokens_today = 0;
  std::int64_t tokens_ever = 0;
  std::int64_t jobs_ever = 0;
  std::int64_t jobs_now = 0;
  std::string key;  // the key itself: in the answer that made it, and never again

  friend bool operator==(const KeyView&, const KeyView&) = default;
};
template <class V, Described<KeyView> T>
void describe(V& v, T& value) {
  v("id", value.id);
  v("name", value.name);
  v("scope", value.scope, {.names = kScopes});
  v("models", value.models);
  v("tokens_per_day", value.tokens_per_day);
  v("requests_per_minute", value.requests_per_minute);
  v("revoked", value.revoked);
  v("created_at", value.created_at);
  v("tokens_today", value.tokens_today);
  v("tokens_ever", value.tokens_ever);
  v("jobs_ever", value.jobs_ever);
  v("jobs_now", value.jobs_now);
  v("key", value.key, {.omit_empty = true});
}
struct KeyList {
  std::vector<KeyView> keys;

  friend bool operator==(const KeyList&, const KeyList&) = default;
};
template <class V, Described<KeyList> T>
void describe(V& v, T& value) {
  v("keys", value.keys);
}

// Reads a described struct from a body; what it has beside the struct's own fields is an error each
// unless `others` is true.
template <class T>
T read_described(const json::Object& body, std::vector<json::FieldError>& errors,
                 bool others = false) {
  json::FieldReader reader(body);
  FieldTaker taker(reader);
  T value;
  describe(taker, value);
  if (others) reader.ignore_others();
  errors = reader.finish();
  return value;
}

}  // namespace llorch::contract
