#include "fleet/eviction.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace llorch::fleet {
namespace {

constexpr double kFadeSeconds = 600;
constexpr double kFreshSeconds = 60;
constexpr double kFreshLoads = 5;  // times as long as it took to load
constexpr double kIdleSecondsMax = 900;

}  // namespace

double keep_value(const Tenant& tenant) {
  const auto bytes = static_cast<double>(std::max<std::int64_t>(1, tenant.bytes));
  return tenant.reload_ms * std::exp(-tenant.idle_s / kFadeSeconds) / bytes;
}

bool may_leave(const Tenant& tenant) {
  const double fresh_s = std::max(kFreshSeconds, kFreshLoads * tenant.reload_ms / 1000);
  return !tenant.is_busy && !tenant.is_pinned && tenant.age_s >= fresh_s;
}

std::optional<std::vector<WorkerIndex>> choose_evictions(std::span<const Tenant> tenants,
                                                         std::int64_t needed_bytes) {
  std::vector<const Tenant*> leaving;
  for (const Tenant& tenant : tenants) {
    if (may_leave(tenant)) leaving.push_back(&tenant);
  }
  std::sort(leaving.begin(), leaving.end(), [](const Tenant* a, const Tenant* b) {
    return std::pair(keep_value(*a), a->worker) < std::pair(keep_value(*b), b->worker);
  });
  std::int64_t freed = 0;
  std::size_t count = 0;
  while (count < leaving.size() && freed < needed_bytes) freed += leaving[count++]->bytes;
  if (freed < needed_bytes) return std::nullopt;
  // The last one may be so big that earlier ones can stay; the most valuable are asked first.
  std::vector<WorkerIndex> chosen;
  for (std::size_t i = count; i-- > 0;) {
    if (freed - leaving[i]->bytes >= needed_bytes) {
      freed -= leaving[i]->bytes;
    } else {
      chosen.push_back(leaving[i]->worker);
    }
  }
  return chosen;
}

bool is_past_idle_time(const Tenant& tenant) {
  return may_leave(tenant) && tenant.idle_s >= kIdleSecondsMax;
}

}  // namespace llorch::fleet
