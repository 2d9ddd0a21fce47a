// Which idle workers leave a device when another model needs their memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fleet/handles.h"

namespace llorch::fleet {

struct Tenant {
  WorkerIndex worker = kNone;
  std::int64_t bytes = 0;
  double reload_ms = 0;  // what it would cost to have it back
  double idle_s = 0;
  double ends_ms = 0;      // until its jobs, or its load, are likely to have ended
  double age_s = 0;        // since it became ready
  bool is_busy = false;    // or loading, or leaving already
  bool is_pinned = false;  // somebody started it by hand
};

// Milliseconds of loading that a byte of its memory saves, fading with a time of ten minutes.
double keep_value(const Tenant& tenant);
// A worker that was loaded a moment ago stays: two models must not take turns in throwing each
// other out.
bool may_leave(const Tenant& tenant);

// The cheapest workers to lose that free at least this much, and none that is not needed for it.
// None: it cannot be freed.
std::optional<std::vector<WorkerIndex>> choose_evictions(std::span<const Tenant> tenants,
                                                         std::int64_t needed_bytes);

// What frees the memory when nobody may leave now: workers whose jobs end, or that have not been
// here long enough.
struct FutureRoom {
  double wait_ms = 0;                // until all of them may leave
  std::vector<WorkerIndex> workers;  // the first to be ready
  std::vector<WorkerIndex> busy;     // those of them that only their jobs keep
};
// None: what somebody started by hand, or another program, has it.
std::optional<FutureRoom> find_future_room(std::span<const Tenant> tenants,
                                           std::int64_t needed_bytes);

// Whether a worker without work has been kept long enough.
bool is_past_idle_time(const Tenant& tenant);

}  // namespace llorch::fleet
