// The bodies of the orchestrator's API about hosts, models, workers and keys, each described once:
// JSON and schema come out of it. Those about tasks: task_api.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "contract/error_table.h"
#include "contract/fields.h"
#include "contract/task_api.h"

namespace llorch::contract {

inline constexpr std::array<std::string_view, 3> kScopes = {"infer", "admin", "join"};

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
  std::string note;  // why it does not run the programs that it was to get
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
  v("note", value.note, {.omit_empty = true});
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

// A model on its way to a worker or to a disk, by whomever that was ordered.
struct FleetLoad {
  std::string host;
  std::string model;
  std::string
      stage;  // "making room", "fetching", "loading"; of a pool's own: "queued", "verifying"
  std::optional<double> progress;  // 0..1 of that stage
  double eta_ms = 0;               // until the stage is done; 0: not known

  friend bool operator==(const FleetLoad&, const FleetLoad&) = default;
};
template <class V, Described<FleetLoad> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("model", value.model);
  v("stage", value.stage);
  v("progress", value.progress, {.thousandths = true});
  v("eta_ms", value.eta_ms, {.thousandths = true});
}

// GET /v2/status: the whole house in one answer.
struct FleetStatus {
  std::string version;
  std::int64_t boot = 0;
  double uptime_seconds = 0;
  std::int64_t queued = 0;
  std::int64_t running = 0;   // dispatched ones counted
  std::int64_t attached = 0;  // of both: requests that live with their connection
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
  std::vector<FleetLoad> loads;
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
  v("attached", value.attached);
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
  v("loads", value.loads);
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

// What was written.
struct BackupAnswer {
  std::string file;
  std::int64_t bytes = 0;
};
template <class V, Described<BackupAnswer> T>
void describe(V& v, T& value) {
  v("file", value.file);
  v("bytes", value.bytes);
}

// GET /health of the orchestrator.
enum class FleetHealthState : std::uint8_t { Starting, Healthy, Draining };
inline constexpr base::EnumNames<FleetHealthState::Draining> kFleetHealthStates("starting",
                                                                                "healthy",
                                                                                "draining");
struct FleetHealth {
  FleetHealthState status = FleetHealthState::Healthy;
  std::string version;
  double uptime_seconds = 0;
  // The envelope that every other error has, beside what a probe wants to know.
  std::optional<ErrorDetail> error;
};
template <class V, Described<FleetHealth> T>
void describe(V& v, T& value) {
  v("status", value.status, {.names = kFleetHealthStates.words()});
  v("version", value.version);
  v("uptime_seconds", value.uptime_seconds);
  v("error", value.error);
}

}  // namespace llorch::contract
