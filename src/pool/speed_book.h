// SpeedBook: how fast models have run on the devices of this host, kept in a file over restarts.
// Any thread; saving blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "contract/pool_info.h"
#include "contract/pool_state.h"
#include "pool/speed_learner.h"

namespace llorch::pool {

inline constexpr std::size_t kSpeedsMax = 1'000;  // pairs of a model and a device; the oldest goes

class SpeedBook {
 public:
  // What cannot be read counts as nothing: it is measured again. An empty path keeps nothing.
  explicit SpeedBook(std::filesystem::path file);

  // Each value is a moving mean: an eighth of it is the newest measurement.
  void add(const contract::PoolWorker& worker, const std::vector<SpeedSample>& samples);
  void add_load(const contract::PoolWorker& worker, double millis);

  std::vector<contract::ModelSpeed> list() const;
  // Another one when something is new or has moved by a tenth since the last time.
  std::uint64_t version() const;

  // Writes what is not written yet; `now` or not at all within ten seconds of the last time.
  Status save(bool now);

 private:
  using Key = std::pair<std::string, std::int32_t>;  // model hash, device
  contract::ModelSpeed* row(const contract::PoolWorker& worker) LLORCH_REQUIRES(mutex_);
  void blend(double& value, double sample) LLORCH_REQUIRES(mutex_);

  const std::filesystem::path file_;
  mutable base::Mutex mutex_;
  std::map<Key, contract::ModelSpeed> speeds_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t version_ LLORCH_GUARDED_BY(mutex_) = 0;
  bool changed_ LLORCH_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point saved_ LLORCH_GUARDED_BY(mutex_){};
};

}  // namespace llorch::pool
