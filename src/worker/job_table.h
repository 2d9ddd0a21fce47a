// JobTable: which job ids are in use, which were, and which generation each is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "base/result.h"

namespace llorch::worker {

// Any thread. Ended ids are remembered up to a bound, the oldest forgotten first.
class JobTable {
 public:
  // One use of an id; ids may be used again once they have ended.
  using Use = std::uint64_t;

  explicit JobTable(std::size_t max_ended = 4096) : max_ended_(max_ended) {}

  // Conflict while the id is in use.
  Result<Use> begin(const std::string& job_id);
  // Its generation is known. True when somebody asked to cancel it before that.
  bool bind(Use use, std::uint64_t generation);
  // It never ran: as if it had not begun.
  void withdraw(Use use);
  void end(Use use);

  // Asks to cancel. The generation to cancel now; nothing when it has ended, or is not bound yet
  // (bind() will tell). NotFound for an id that is neither in use nor remembered.
  Result<std::optional<std::uint64_t>> cancel(std::string_view job_id);

  std::size_t num_active() const;

 private:
  struct Entry {
    std::string job_id;
    std::optional<std::uint64_t> generation;
    bool cancel_wanted = false;
  };

  const std::size_t max_ended_;
  mutable base::Mutex mutex_;
  Use next_use_ LLORCH_GUARDED_BY(mutex_) = 1;
  std::unordered_map<Use, Entry> active_ LLORCH_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Use> use_by_id_ LLORCH_GUARDED_BY(mutex_);  // of active_
  // How often each is in the ring.
  std::unordered_map<std::string, std::size_t> ended_ LLORCH_GUARDED_BY(mutex_);
  std::deque<std::string> ended_order_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::worker
