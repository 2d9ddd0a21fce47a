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

double fresh_seconds(const Tenant& tenant) {
  return std::max(kFreshSeconds, kFreshLoads * tenant.reload_ms / 1000);
}

bool is_kept_long_enough(const Tenant& tenant) {
  return tenant.age_s >= fresh_seconds(tenant);
}

// Until it may leave, if nobody gives it another job.
double leaves_ms(const Tenant& tenant) {
  const double fresh_ms = 1000 * (fresh_seconds(tenant) - tenant.age_s);
  return std::max({0.0, fresh_ms, tenant.is_busy ? tenant.ends_ms : 0.0});
}

}  // namespace

double keep_value(const Tenant& tenant) {
  const auto bytes = static_cast<double>(std::max<std::int64_t>(1, tenant.bytes));
  return tenant.reload_ms * std::exp(-tenant.idle_s / kFadeSeconds) / bytes;
}

bool may_leave(const Tenant& tenant) {
  return !tenant.is_busy && !tenant.is_pinned && is_kept_long_enough(tenant);
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

std::optional<FutureRoom> find_future_room(std::span<const Tenant> tenants,
                                           std::int64_t needed_bytes) {
  std::vector<std::pair<double, const Tenant*>> leaving;
  for (const Tenant& tenant : tenants) {
    if (!tenant.is_pinned) leaving.emplace_back(leaves_ms(tenant), &tenant);
  }
  std::sort(leaving.begin(), leaving.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->worker) < std::pair(b.first, b.second->worker);
  });
  FutureRoom room;
  std::int64_t freed = 0;
  for (const auto& [wait_ms, tenant] : leaving) {
    if (freed >= needed_bytes) break;
    freed += tenant->bytes;
    room.wait_ms = wait_ms;
    room.workers.push_back(tenant->worker);
    if (tenant->is_busy && is_kept_long_enough(*tenant)) room.busy.push_back(tenant->worker);
  }
  if (freed < needed_bytes) return std::nullopt;
  return room;
}

bool is_past_idle_time(const Tenant& tenant) {
  return may_leave(tenant) && tenant.idle_s >= kIdleSecondsMax;
}

}  // namespace llorch::fleet
