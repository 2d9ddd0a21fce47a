// What a pool says about itself (GET /v2/state), read tolerantly, and the same as the fleet sees
// it. Pure; older pools lack some fields, which lowers what is asked of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "fleet/events.h"

namespace llorch::orchestrator {

struct ReportedModel {
  contract::ModelEntry entry;
  std::string hash;             // of its weights; empty: the pool does not say
  std::int64_t need_bytes = 0;  // 0: the pool does not say
};

struct ReportedWorker {
  contract::PoolWorker worker;
  std::uint32_t start = 0;
  std::string model_hash;
  std::string build;
  std::string device_class;
};

struct ReportedSpeed {
  std::string model;
  std::string backend;
  double prefill_tps = 0;
  std::vector<std::pair<std::uint32_t, double>> decode_tps;
  double load_ms = 0;
};

struct PoolReport {
  std::string pool_id;
  std::string version;
  std::uint64_t start = 0;     // its birth
  std::uint64_t revision = 0;  // 0: an older pool, which cannot be waited for
  contract::HostInfo host;
  std::vector<ReportedModel> models;
  std::vector<ReportedWorker> workers;
  std::vector<ReportedSpeed> speeds;
  std::vector<std::string> labels;
};

// Corrupt: this is not the state of a pool.
Result<PoolReport> read_pool_report(const json::Value& state);
Result<ReportedWorker> read_reported_worker(const json::Value& worker);
// The list "known" of GET /v2/models?known=true: what could be fetched.
std::vector<contract::ModelEntry> read_known_models(const json::Value& answer);

// Devices by number: 0 is the CPU, n + 1 the GPU n.
inline constexpr std::uint32_t kCpuDevice = 0;
std::string_view backend_of_device(std::uint32_t device);

// Which model a name or a hash stands for. A model that nobody has yet is known by its name; once
// its files are there they have a hash of their own, and both mean the same model from then on.
class ModelBook {
 public:
  // `weights` may be empty.
  fleet::ModelHash find(const contract::ModelEntry& entry, std::string_view weights);
  fleet::ModelHash find_by_id(const std::string& id);

  // To be kept, and given back after a start: "hash of the files" → "hash that stands for it".
  using Alias = std::pair<fleet::ModelHash, fleet::ModelHash>;
  std::vector<Alias> take_new_aliases() { return std::exchange(new_aliases_, {}); }
  void add_alias(const Alias& alias) { aliases_.insert(alias); }

 private:
  std::unordered_map<std::string, fleet::ModelHash> by_id_;
  std::unordered_map<fleet::ModelHash, fleet::ModelHash, fleet::ModelHashHash> aliases_;
  std::vector<Alias> new_aliases_;
};

fleet::PoolSeen make_pool_seen(const fleet::HostId& host, const PoolReport& report,
                               const std::vector<contract::ModelEntry>& known, ModelBook& book);

}  // namespace llorch::orchestrator
