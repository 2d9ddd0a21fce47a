// What a pool says about itself (contract/pool_state.h) as the fleet sees it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "contract/fleet_api.h"
#include "contract/pool_state.h"
#include "fleet/events.h"

namespace llorch::orchestrator {

// Devices by number: 0 is the CPU, n + 1 the GPU n.
inline constexpr std::uint32_t kCpuDevice = 0;
std::string_view backend_of_device(std::uint32_t device);

// Which model a hash stands for. One that is not on a disk yet is called after its source; once its
// files are there they have a hash of their own, and both mean the same model from then on: jobs
// may wait for it under the first.
class ModelBook {
 public:
  fleet::ModelHash find(const contract::PoolModel& model);
  fleet::ModelHash find(std::string_view hash, const std::string& id);

  // To be kept, and given back after a start: hash of the files → hash that stands for it.
  using Alias = std::pair<fleet::ModelHash, fleet::ModelHash>;
  std::vector<Alias> take_new_aliases() { return std::exchange(new_aliases_, {}); }
  void add_alias(const Alias& alias) { aliases_.insert(alias); }

 private:
  struct Known {
    fleet::ModelHash hash;
    bool is_provisional = false;  // of its source
  };
  fleet::ModelHash resolve(const fleet::ModelHash& hash) const;

  std::unordered_map<std::string, Known> by_id_;
  std::unordered_map<fleet::ModelHash, fleet::ModelHash, fleet::ModelHashHash> aliases_;
  std::vector<Alias> new_aliases_;
};

fleet::PoolSeen make_pool_seen(const fleet::HostId& host, const contract::PoolState& state,
                               ModelBook& book);

fleet::SeenWorker make_seen_worker(const contract::PoolWorker& worker, ModelBook& book);

// Downloads and verifications that are under way, by whomever they were begun, from the whole of
// GET /v2/state; at most kDownloadsShown.
inline constexpr std::size_t kDownloadsShown = 64;
std::vector<contract::FleetLoad> list_downloads(const fleet::HostId& host,
                                                const json::Value& state);

// Whether a worker that did not come up says nothing about its model: it was killed or stopped,
// hung or ran out of memory.
bool was_accident(const contract::PoolWorker& worker);

// The birth of a worker, as the fleet tells two of one name apart.
std::uint32_t start_of(const contract::PoolWorker& worker);

}  // namespace llorch::orchestrator
