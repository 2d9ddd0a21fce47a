// BodyShare: what one body takes of the bytes that all bodies under way may have. Private to http/.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstddef>

#include "base/result.h"

namespace llorch::http {

class BodyShare {
 public:
  BodyShare(std::atomic<std::size_t>& total, std::size_t max_total)
      : total_(total), max_total_(max_total) {}
  ~BodyShare() { total_ -= mine_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  Status grow_to(std::size_t bytes) {
    if (bytes <= mine_) return ok_status();
    const std::size_t more = bytes - mine_;
    mine_ = bytes;
    if (total_.fetch_add(more) + more <= max_total_) return ok_status();
    return Error{
        ErrorCode::Unavailable,
        fmt::format("this server is reading {} bytes of requests already; try again", max_total_)};
  }

 private:
  std::atomic<std::size_t>& total_;
  const std::size_t max_total_;
  std::size_t mine_ = 0;
};

}  // namespace llorch::http
