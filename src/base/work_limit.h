// WorkLimit: when work that takes time in proportion to its input gives up.
#pragma once

#include <chrono>
#include <stop_token>

#include "base/result.h"

namespace llorch::base {

struct WorkLimit {
  std::stop_token stop = {};  // nobody wants the result any more
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  bool is_over() const {
    return stop.stop_requested() || std::chrono::steady_clock::now() >= deadline;
  }
  // Cancelled or DeadlineExceeded once it is over.
  Status check() const {
    if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "nobody waits for this any more"};
    if (std::chrono::steady_clock::now() < deadline) return ok_status();
    return Error{ErrorCode::DeadlineExceeded,
                 "the time for this request was over before it was read: send less at once"};
  }
};

}  // namespace llorch::base
