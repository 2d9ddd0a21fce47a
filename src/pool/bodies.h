// What the pool's endpoints take and give beside the contract's values and the catalog's, field by
// field: what reads, writes and documents them comes out of these (contract/fields.h). Private to
// pool/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/adopt.h"
#include "catalog/describe.h"
#include "catalog/leftovers.h"
#include "catalog/outdated.h"
#include "contract/download_event.h"
#include "contract/error_table.h"
#include "contract/fields.h"
#include "contract/limits.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "fetch/chunks.h"
#include "fetch/transfer.h"
#include "pool/downloads.h"
#include "pool/memory_plan.h"

namespace llorch::pool {

using contract::Described;

// A body or a query that may hold nothing.
struct NoFields {};
template <class V, Described<NoFields> T>
void describe(V&, T&) {}

inline constexpr std::array<std::string_view, 1> kOk = {"ok"};
struct OkAnswer {
  std::string status{kOk[0]};
};
template <class V, Described<OkAnswer> T>
void describe(V& v, T& answer) {
  v("status", answer.status, {.names = kOk});
}

enum class HealthState : std::uint8_t { Starting, Healthy, Unhealthy, Draining };
inline constexpr base::EnumNames<HealthState::Draining> kHealthStates("starting", "healthy",
                                                                      "unhealthy", "draining");
struct Health {
  HealthState status = HealthState::Healthy;
  std::string pool_id;
  std::string version;
  double uptime_seconds = 0;
  std::int64_t workers_total = 0;
  std::int64_t workers_ready = 0;
  std::int64_t workers_failed = 0;
  std::string confinement;
  std::vector<std::string> reasons;
  // The envelope that every other error has, beside what a probe wants to know.
  std::optional<contract::ErrorDetail> error;
};
template <class V, Described<Health> T>
void describe(V& v, T& health) {
  v("status", health.status, {.names = kHealthStates.words()});
  v("pool_id", health.pool_id);
  v("version", health.version);
  v("uptime_seconds", health.uptime_seconds);
  v("workers_total", health.workers_total);
  v("workers_ready", health.workers_ready);
  v("workers_failed", health.workers_failed);
  v("confinement", health.confinement);
  v("reasons", health.reasons, {.omit_empty = true});
  v("error", health.error);
}

struct StateQuery {
  std::optional<std::uint64_t> since;
  std::int64_t wait_ms = 0;
};
inline constexpr std::int64_t kStateWaitMsMax = 30'000;
template <class V, Described<StateQuery> T>
void describe(V& v, T& query) {
  v("since", query.since, {.min = 0});
  v("wait_ms", query.wait_ms, {.min = 0, .max = kStateWaitMsMax});
}

// Workers.
struct WorkerList {
  std::vector<contract::PoolWorker> workers;
};
template <class V, Described<WorkerList> T>
void describe(V& v, T& list) {
  v("workers", list.workers);
}

struct StopWorkerRequest {
  std::string id;
  std::optional<std::int64_t> timeout_sec;
};
template <class V, Described<StopWorkerRequest> T>
void describe(V& v, T& request) {
  v("id", request.id, {.must = true, .bytes = {1, 64}});
  v("timeout_sec", request.timeout_sec,
    {.min = 0,
     .max = contract::kDrainSecondsMax,
     .doc = "How long what runs may go on; then it ends with an error. Default 30."});
}

struct LogQuery {
  std::int64_t lines = 100;
  bool follow = false;
};
template <class V, Described<LogQuery> T>
void describe(V& v, T& query) {
  v("lines", query.lines, {.min = 0, .max = 10'000});
  v("follow", query.follow);
}

// Models. One as the catalog has it, and how it stands.
struct ShownModel {
  contract::ModelEntry entry;
  std::string state;
};
// Beside the entry's own fields.
template <class V, Described<ShownModel> T>
void describe_state(V& v, T& model) {
  v("state", model.state, {.names = catalog::kModelStates});
}
json::Object to_json(const ShownModel& model);

struct ModelList {
  std::vector<ShownModel> models;
  std::optional<std::vector<ShownModel>> known;
};
template <class V, Described<ModelList> T>
void describe(V& v, T& list) {
  v("models", list.models);
  v("known", list.known);
}

struct ListQuery {
  bool known = false;
};
template <class V, Described<ListQuery> T>
void describe(V& v, T& query) {
  v("known", query.known);
}

struct RemoveQuery {
  bool files = false;
};
template <class V, Described<RemoveQuery> T>
void describe(V& v, T& query) {
  v("files", query.files);
}

struct RevisionList {
  std::vector<catalog::RevisionCheck> models;
};
template <class V, Described<RevisionList> T>
void describe(V& v, T& list) {
  v("models", list.models);
}

struct Plans {
  std::string model;
  std::vector<MemoryPlan> plans;
};
template <class V, Described<Plans> T>
void describe(V& v, T& plans) {
  v("model", plans.model);
  v("plans", plans.plans);
}

struct Manifest {
  std::string id;
  std::string ref;
  std::string revision;
  std::vector<fetch::FileChunks> files;
};
template <class V, Described<Manifest> T>
void describe(V& v, T& manifest) {
  v("id", manifest.id);
  v("ref", manifest.ref);
  v("revision", manifest.revision);
  v("files", manifest.files);
}

struct LeftoverList {
  std::vector<catalog::Leftover> leftovers;
};
template <class V, Described<LeftoverList> T>
void describe(V& v, T& list) {
  v("leftovers", list.leftovers);
  v.derived("bytes", catalog::total_bytes(list.leftovers));
}

// Downloads and verifications.
struct NeighbourText {
  std::string url;
  std::string token;
};
template <class V, Described<NeighbourText> T>
void describe(V& v, T& neighbour) {
  v("url", neighbour.url, {.must = true, .bytes = {1, 2048}});
  v("token", neighbour.token, {.bytes = {0, 4096}});
}
inline constexpr contract::FieldRule kNeighbours{.max_items = 64};

struct DownloadBody {
  std::string ref;
  std::string sha256;
  std::string hf_token;
  std::optional<std::int32_t> connections;
  std::vector<NeighbourText> neighbours;
  bool only_neighbours = false;
};
template <class V, Described<DownloadBody> T>
void describe(V& v, T& body) {
  v("ref", body.ref, {.bytes = {1, 2048}});
  v("sha256", body.sha256, {.bytes = {64, 64}, .pattern = "^[0-9a-f]{64}$"});
  v("hf_token", body.hf_token, {.bytes = {1, 4096}});
  v("connections", body.connections, {.min = 1, .max = fetch::kConnectionsMax});
  v("neighbours", body.neighbours, kNeighbours);
  v("only_neighbours", body.only_neighbours);
}

// Where the path has no id.
struct NamedDownloadBody {
  std::string id;
  DownloadBody download;
};
template <class V, Described<NamedDownloadBody> T>
void describe(V& v, T& body) {
  v("id", body.id, {.bytes = {1, 128}});
  describe(v, body.download);
}

struct VerifyBody {
  bool repair = false;
  std::vector<NeighbourText> neighbours;
};
template <class V, Described<VerifyBody> T>
void describe(V& v, T& body) {
  v("repair", body.repair);
  v("neighbours", body.neighbours, kNeighbours);
}

struct DownloadAccepted {
  std::string download_id;
  std::string model;
  std::string events_url;
  DownloadState state = DownloadState::Queued;
  bool joined = false;
};
template <class V, Described<DownloadAccepted> T>
void describe(V& v, T& accepted) {
  v("download_id", accepted.download_id);
  v("model", accepted.model);
  v("events_url", accepted.events_url);
  v("state", accepted.state, {.names = kDownloadStates.words()});
  v("joined", accepted.joined);
}

struct DownloadList {
  std::vector<DownloadView> downloads;
};
template <class V, Described<DownloadList> T>
void describe(V& v, T& list) {
  v("downloads", list.downloads);
}

}  // namespace llorch::pool

namespace llorch::contract {
template <>
json::Object schema_of<pool::ShownModel>();
}  // namespace llorch::contract
