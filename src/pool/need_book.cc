#include "pool/need_book.h"

#include <algorithm>
#include <utility>

namespace llorch::pool {
namespace {

constexpr std::size_t kNeedsMax = 10'000;

std::int64_t ask_need(const contract::ModelEntry& model, const PlanModel& plan) {
  std::int64_t need = 0;
  for (const std::string& backend : model.backends) {
    PlanRequest request;
    request.backend = backend;
    if (model.context_length && *model.context_length > 0)
      request.context =
          static_cast<std::int32_t>(std::min<std::int64_t>(*model.context_length, 16'777'216));
    const Result<std::vector<MemoryPlan>> plans = plan(model, request);
    if (!plans.ok()) continue;  // no such device here, or its program is missing
    for (const MemoryPlan& one : *plans) {
      const std::int64_t room = std::max<std::int64_t>(0, one.total_bytes - one.margin_bytes);
      need = std::max(need, std::min(one.required_bytes(), room));
    }
  }
  return need;
}

}  // namespace

std::optional<std::int64_t> NeedBook::find(std::string_view hash) const {
  const base::MutexLock lock(mutex_);
  const auto found = needs_.find(hash);
  if (found == needs_.end()) return std::nullopt;
  return found->second;
}

std::size_t NeedBook::version() const {
  const base::MutexLock lock(mutex_);
  return version_;
}

void NeedBook::learn(const std::vector<PlannedModel>& models, const PlanModel& plan,
                     std::size_t most) {
  if (learning_.exchange(true)) return;
  for (const PlannedModel& model : models) {
    if (most == 0) break;
    if (find(model.hash)) continue;
    --most;
    const std::int64_t need = ask_need(*model.entry, plan);
    const base::MutexLock lock(mutex_);
    if (needs_.size() >= kNeedsMax) needs_.clear();  // asked again, a few at a time
    needs_[model.hash] = need;
    ++version_;
  }
  learning_ = false;
}

}  // namespace llorch::pool
