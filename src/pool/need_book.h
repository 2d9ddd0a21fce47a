// NeedBook: what a worker of each model would take, asked once for each and kept. Private to pool/;
// any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "contract/model_entry.h"
#include "pool/memory_plan.h"

namespace llorch::pool {

struct PlannedModel {
  std::string hash;
  const contract::ModelEntry* entry = nullptr;
};
using PlanModel =
    std::function<Result<std::vector<MemoryPlan>>(const contract::ModelEntry&, const PlanRequest&)>;

class NeedBook {
 public:
  // With its whole context, or as much of it as an empty device would hold; the most of all devices
  // that can run it. 0: no device can, or nobody could say.
  std::optional<std::int64_t> find(std::string_view hash) const;

  // Asks about some that are not known yet, at most `most`; only one thread does at a time, and the
  // others return at once.
  void learn(const std::vector<PlannedModel>& models, const PlanModel& plan, std::size_t most);

  std::size_t version() const;  // another one when there is something new

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> needs_ LLORCH_GUARDED_BY(mutex_);
  std::size_t version_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> learning_ = false;
};

}  // namespace llorch::pool
