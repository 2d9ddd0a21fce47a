// GET /v2/state: everything that a fleet's decisions need to know about one host, in one answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/fields.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"

namespace llorch::contract {

// Raised when something that older programs rely on changes its meaning; what is only added is a
// feature.
inline constexpr std::int32_t kPoolApi = 2;
// What this pool can do, by name. Programs ask for these and never for versions.
inline constexpr std::string_view kFeatureRelay = "relay";           // /v2/workers/{id}/api/…
inline constexpr std::string_view kFeatureBoot = "boot";             // X-Llorch-Boot fences
inline constexpr std::string_view kFeatureStateWait = "state-wait";  // ?since=&wait_ms=
inline constexpr std::string_view kFeatureSpeeds = "speeds";         // measured
inline constexpr std::string_view kFeatureUnixSocket = "unix-socket";
inline constexpr std::string_view kFeatureOnDemand = "on-demand";  // of workers, told and kept

// Of whom a relayed request comes: how often that orchestrator has started.
inline constexpr std::string_view kBootHeader = "X-Llorch-Boot";

// What the contents of a model are called: 32 hex digits, the same on every host that has the same
// files. Of one file the first half of its SHA-256; of several the first half of the SHA-256 over
// "<path> <sha256>\n" of each, in the order of their paths; of the built-in model that of its name.
// Files whose hashes nobody has seen yet (registered in place, not verified) get a name that no
// other host has: `place` goes into it. A model that is not here is named after its source, unless
// its files' hashes are known, until it is.
std::string model_hash(const ModelEntry& model, std::string_view place);

// A device's number: 0 the CPU, 1 + n GPU n.
std::int32_t device_number(std::string_view backend, std::int32_t gpu);

struct PoolDevice {
  std::int32_t number = 0;
  std::string backend;  // "cpu", "cuda": whose workers run on it
  std::string name;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // without what running workers were promised and have not taken yet
  std::int64_t bytes_per_second = 0;  // of its memory; 0: not known

  friend bool operator==(const PoolDevice&, const PoolDevice&) = default;
};

// What a fleet wants to know of a model; on the wire these stand among the catalog's own fields.
struct PoolModel {
  std::string id;
  std::string name;
  std::string model_hash;
  bool downloaded = false;
  std::vector<std::string> backends;  // that can run it; it runs on every device of these
  std::int64_t weight_bytes = 0;
  std::int64_t need_bytes = 0;     // of a worker, with cache and buffers; 0: not known yet
  std::int64_t missing_bytes = 0;  // that a download has to bring
  std::int64_t context = 0;        // tokens; 0: not known

  friend bool operator==(const PoolModel&, const PoolModel&) = default;
};

// Tokens per second of each of so many streams at once.
struct StreamSpeed {
  std::int32_t streams = 1;
  double tps = 0;

  friend bool operator==(const StreamSpeed&, const StreamSpeed&) = default;
};

// What was measured of one model on one device; 0: not yet.
struct ModelSpeed {
  std::string model;  // catalog id
  std::string model_hash;
  std::string backend;
  std::int32_t device = 0;
  double prefill_tps = 0;
  std::vector<StreamSpeed> decode_tps;  // by rising number of streams: 1, 2, 4 … 64
  double load_ms = 0;                   // from the start of a worker to its readiness
  std::int64_t samples = 0;
  std::string measured_at;  // RFC 3339, UTC

  friend bool operator==(const ModelSpeed&, const ModelSpeed&) = default;
};

struct PoolState {
  std::string pool_id;
  std::string version;
  std::int32_t api = kPoolApi;
  std::vector<std::string> features;
  std::uint64_t pool_start = 0;  // birth of this manager, milliseconds since 1970
  // Grows with every change of workers, models, speeds and downloads, over restarts too. Numbers
  // that move all the time (free memory, tokens per second, ages) are no change.
  std::uint64_t revision = 0;
  double uptime_seconds = 0;
  std::vector<std::string> labels;
  HostInfo host;
  std::vector<PoolDevice> devices;
  std::vector<PoolModel> models;  // of the catalog, and the built-in one
  std::vector<PoolModel> known;   // that have a short name and are not in the catalog
  std::vector<PoolWorker> workers;
  std::vector<ModelSpeed> speeds;

  bool has_feature(std::string_view name) const;
  friend bool operator==(const PoolState&, const PoolState&) = default;
};

// From another program of ours, also an older one: what is missing keeps its default.
Result<PoolState> parse_pool_state(const json::Value& value);
json::Object to_json(const PoolState& state);
json::Object to_json(const PoolModel& model);
json::Object to_json(const PoolDevice& device);
json::Object to_json(const ModelSpeed& speed);
Result<ModelSpeed> parse_model_speed(const json::Value& value);
template <>
json::Object schema_of<PoolState>();
template <>
json::Object schema_of<PoolModel>();
template <>
json::Object schema_of<PoolDevice>();
template <>
json::Object schema_of<ModelSpeed>();

// What a pool may be told about itself: at most 32, each 1..64 of [A-Za-z0-9._=/-].
inline constexpr std::size_t kLabelsMax = 32;
bool is_label(std::string_view text);

}  // namespace llorch::contract
