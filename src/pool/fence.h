// Fence: of two orchestrators the later one alone drives this pool's workers. Each raises a number
// durably before it does anything (its boot) and sends it along. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>

#include "base/mutex.h"
#include "base/result.h"
#include "http/message.h"

namespace llorch::pool {

class Fence {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // How long relays go on when their orchestrator asks for the state no more.
  static constexpr std::chrono::seconds kPatience{45};

  // A relayed request of that boot. A higher one ends the relays of all others; a lower one is a
  // Conflict, and so is one whose orchestrator has not polled for kPatience. The token is stopped
  // when the relay is to end.
  Result<std::stop_token> enter(std::uint64_t boot, TimePoint now);
  // A poll of that boot. Conflict for a lower one than another's, unless that was not heard for
  // kPatience: then it has gone for good, or comes back with its higher number.
  Status hear(std::uint64_t boot, TimePoint now);
  // Ends the relays of an orchestrator that was not heard for kPatience. To be called now and then.
  void look(TimePoint now);

 private:
  // The relays of boots before, which are to end; none where the boot is not a new one.
  std::optional<std::stop_source> raise(std::uint64_t boot, TimePoint now) LLORCH_REQUIRES(mutex_);
  Error outdated(std::uint64_t boot) const LLORCH_REQUIRES(mutex_);

  base::Mutex mutex_;
  std::uint64_t boot_ LLORCH_GUARDED_BY(mutex_) = 0;
  TimePoint heard_ LLORCH_GUARDED_BY(mutex_){};
  std::stop_source relays_ LLORCH_GUARDED_BY(mutex_);
};

// The number of the X-Llorch-Boot header; none without one; InvalidArgument for anything else.
Result<std::optional<std::uint64_t>> boot_of(const http::Headers& headers);

}  // namespace llorch::pool
